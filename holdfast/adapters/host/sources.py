"""Every source of state, one row each: whether a machine has it, and how it is read."""

import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast.adapters.host import accelerators, host_state, network
from holdfast.adapters.host.commands import run_command
from holdfast.adapters.host.machine import Machine
from holdfast.adapters.host.sampler import Reading, SourceSchedule
from holdfast.adapters.host.stream import CommandStream
from holdfast.model.errors import BackendError

_DOMAIN: Final = re.compile(r"^ {0,8}domain: {1,8}(\S{1,100}?)(?:-rdm|-dgrm)?\s*$", re.M)
_OF_UNITS: Final = ("ActiveState", "SubState", "Result", "NRestarts")


def efa_domains(_root: Path, text: str) -> dict[str, str]:
    """The devices that ``fi_info -p efa`` shows: ``domain/NAME``, each once."""
    return {f"domain/{name}": "" for name in _DOMAIN.findall(text)}


def unit_states(_root: Path, text: str) -> dict[str, str]:
    """Of each unit that is installed, ``UNIT/PROPERTY``, from what ``systemctl show`` writes."""
    values: dict[str, str] = {}
    for part in text.split("\n\n"):
        rows = dict(line.split("=", 1) for line in part.splitlines() if "=" in line)
        unit = rows.get("Id", "").removesuffix(".service")
        if unit and rows.get("LoadState") == "loaded":
            values |= {f"{unit}/{name}": rows[name] for name in _OF_UNITS if name in rows}
    return values


_TIMEOUT: Final = timedelta(seconds=30)
"""``nvidia-smi -q -x`` takes about a second on a healthy machine with eight GPUs."""

_GRACE: Final = timedelta(seconds=15)
"""After its time is over, for a command to be ended."""

_DIAGNOSIS: Final = timedelta(minutes=5)
"""The shortest diagnosis of DCGM takes seconds for each GPU."""

_MONITOR_PERIOD: Final = timedelta(seconds=5)
"""Of ``neuron-monitor``, unless it is configured otherwise."""

_UNITS: Final = ("kubelet", "containerd", "crio", "docker", "slurmd")
_SHOWN: Final = "--property=Id,LoadState,ActiveState,SubState,Result,NRestarts"


@dataclass(frozen=True, slots=True)
class Source:
    """One source."""

    is_on: Callable[[Machine], bool]
    """Whether the machine has what is read."""

    plan: Callable[[Machine, timedelta], SourceSchedule]
    """How it is read, every so often."""


def plans(
    wanted: Mapping[str, timedelta], machine: Machine, needed: Collection[str] = ()
) -> dict[str, SourceSchedule]:
    """How to take the samples that are wanted, by name.

    Those that ``machine`` can give, and those that are ``needed``, whether or not it can.
    """
    return {
        name: SOURCES[name].plan(machine, every)
        for name, every in wanted.items()
        if name in needed or SOURCES[name].is_on(machine)
    }


def journalctl(machine: Machine) -> tuple[str, ...]:
    """The command that reads the journal of ``machine``, with its options."""
    command = machine.find("journalctl") or "journalctl"
    return (command, f"--root={machine.root}") if machine.is_elsewhere else (command,)


def _has(machine: Machine, command: str, *paths: str) -> bool:
    """Whether a machine has a command, and what it looks at."""
    is_there = all((machine.root / path).exists() for path in paths)
    return is_there and machine.find(command) is not None


def _nothing(_root: Path, _text: str) -> Mapping[str, str]:
    return {}


def _command(
    *argv: str,
    values: Callable[[Path, str], Mapping[str, str]] = _nothing,
    needs: tuple[str, ...] = (),
    timeout: timedelta = _TIMEOUT,
) -> Source:
    """What a command writes, and ``values`` beside it, on a machine that ``needs`` some files."""

    def read(machine: Machine) -> Reading:
        program = machine.find(argv[0]) or argv[0]
        result = run_command([program, *argv[1:]], timeout=timeout)
        # Its errors come on either side; what it measured comes on standard output.
        text = result.stdout if result.stdout.strip() else result.stderr
        return Reading(
            text=text, values={**values(machine.root, text), "status": str(result.status)}
        )

    return Source(
        is_on=lambda machine: _has(machine, argv[0], *needs),
        plan=lambda machine, every: SourceSchedule(
            read=partial(read, machine), every=every, timeout=timeout + _GRACE
        ),
    )


def _stream(*argv: str, silence: timedelta | None = None) -> Source:
    """What a command has written since the last reading; it goes on and on."""

    def plan(machine: Machine, every: timedelta) -> SourceSchedule:
        stream = CommandStream(
            lambda: (machine.find(argv[0]) or argv[0], *argv[1:]), silence=silence
        )

        def read() -> Reading:
            text = b"\n".join(stream.read()).decode("utf-8", errors="replace")
            if stream.error:
                raise BackendError(stream.error)
            return Reading(text=text)

        return SourceSchedule(read=read, every=every, close=stream.close)

    return Source(is_on=lambda machine: _has(machine, argv[0]), plan=plan)


def _either(first: Source, other: Source) -> Source:
    """The other one where a machine does not have the first."""

    def plan(machine: Machine, every: timedelta) -> SourceSchedule:
        source = other if other.is_on(machine) and not first.is_on(machine) else first
        return source.plan(machine, every)

    return Source(is_on=lambda machine: first.is_on(machine) or other.is_on(machine), plan=plan)


def _if_installed(package: str, source: Source) -> Source:
    """A source that needs an extra."""
    return Source(
        is_on=lambda machine: find_spec(package) is not None and source.is_on(machine),
        plan=source.plan,
    )


def _files(values: Callable[[Path], Mapping[str, str]], *needed: str) -> Source:
    """Small files below the root of the machine, which has ``needed``."""
    return Source(
        is_on=lambda machine: all((machine.root / path).exists() for path in needed),
        plan=lambda machine, every: SourceSchedule(
            read=lambda: Reading(values=values(machine.root)), every=every
        ),
    )


SOURCES: Final = {
    "nvidia-smi": _either(
        _command("nvidia-smi", "-q", "-x", values=accelerators.nvidia),
        _if_installed(
            "pynvml",
            _command(
                sys.executable, "-m", "holdfast.adapters.host.nvml_reading",
                values=accelerators.nvidia, needs=("proc/driver/nvidia",),
            ),
        ),
    ),
    "dcgm-health": _command("dcgmi", "health", "-c", "-j"),
    "dcgm-diag": _command("dcgmi", "diag", "-r", "1", "-j", timeout=_DIAGNOSIS),
    "dcgm-policy": _stream("dcgmi", "policy", "--reg"),
    "neuron-ls": _command("neuron-ls", "-j"),
    "neuron-monitor": _stream("neuron-monitor", silence=12 * _MONITOR_PERIOD),
    "neuron": _files(accelerators.neuron, "sys/devices/virtual/neuron_device"),
    "infiniband": Source(
        is_on=lambda machine: (machine.root / "sys/class/infiniband").exists(),
        plan=lambda machine, every: SourceSchedule(
            read=network.Ports(machine.root).read, every=every
        ),
    ),
    "fi-info": _command(
        "fi_info", "-p", "efa", "-t", "FI_EP_RDM",
        values=efa_domains, needs=("sys/class/infiniband",),
    ),
    "ibstat": _command("ibstat", needs=("sys/class/infiniband",)),
    "memory": _files(host_state.memory, "proc/meminfo"),
    "disks": _files(host_state.disks, "proc/self/mountinfo"),
    "edac": _files(host_state.edac, "sys/devices/system/edac/mc"),
    "clock": _files(host_state.clock),
    "processes": _files(host_state.processes, "proc/loadavg"),
    "runtime": _files(host_state.runtime),
    "units": _command(
        "systemctl", "show", _SHOWN, *(f"{unit}.service" for unit in _UNITS),
        values=unit_states, needs=("run/systemd/system",),
    ),
}  # fmt: skip
