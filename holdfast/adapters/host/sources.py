"""Every source of state, one row each: whether a machine has it, and how it is read."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.adapters.host import accelerators, host_state, network
from holdfast.adapters.host.commands import run_command
from holdfast.adapters.host.machine import Machine
from holdfast.adapters.host.sampler import Plan, Reading

_TIMEOUT: Final = timedelta(seconds=30)
"""``nvidia-smi -q -x`` takes about a second on a healthy machine with eight GPUs."""


@dataclass(frozen=True, slots=True)
class Source:
    """One source."""

    is_on: Callable[[Machine], bool]
    """Whether the machine has what is read."""

    reader: Callable[[Machine], Callable[[], Reading]]


def plans(wanted: Mapping[str, timedelta], machine: Machine) -> dict[str, Plan]:
    """How to take the samples that are wanted, by name; those that ``machine`` can give."""
    return {
        name: Plan(read=SOURCES[name].reader(machine), every=every)
        for name, every in wanted.items()
        if SOURCES[name].is_on(machine)
    }


def _nothing(_root: Path, _text: str) -> Mapping[str, str]:
    return {}


def _command(*argv: str, values: Callable[[Path, str], Mapping[str, str]] = _nothing) -> Source:
    """What a command writes, and ``values`` beside it."""

    def read(machine: Machine) -> Reading:
        result = run_command(argv, timeout=_TIMEOUT)
        # Its errors come on either side; what it measured comes on standard output.
        text = result.stdout if result.stdout.strip() else result.stderr
        return Reading(
            text=text, values={**values(machine.root, text), "status": str(result.status)}
        )

    return Source(
        is_on=lambda machine: shutil.which(argv[0], path=machine.path) is not None,
        reader=lambda machine: partial(read, machine),
    )


def _files(values: Callable[[Path], Mapping[str, str]], *needed: str) -> Source:
    """Small files below the root of the machine, which has ``needed``."""
    return Source(
        is_on=lambda machine: all((machine.root / path).exists() for path in needed),
        reader=lambda machine: lambda: Reading(values=values(machine.root)),
    )


SOURCES: Final = {
    "nvidia-smi": _command("nvidia-smi", "-q", "-x", values=accelerators.nvidia),
    "dcgm-health": _command("dcgmi", "health", "-c", "-j"),
    "neuron-ls": _command("neuron-ls", "-j"),
    "neuron": _files(accelerators.neuron, "sys/devices/virtual/neuron_device"),
    "infiniband": Source(
        is_on=lambda machine: (machine.root / "sys/class/infiniband").exists(),
        reader=lambda machine: network.Ports(machine.root).read,
    ),
    "memory": _files(host_state.memory, "proc/meminfo"),
    "disks": _files(host_state.disks, "proc/self/mountinfo"),
    "edac": _files(host_state.edac, "sys/devices/system/edac/mc"),
    "clock": _files(host_state.clock),
    "processes": _files(host_state.processes, "proc/loadavg"),
    "runtime": _files(host_state.runtime),
}
