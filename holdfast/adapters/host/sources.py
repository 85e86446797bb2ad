"""Registry of state sources: whether a machine has each one, and how to read it."""

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
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
from holdfast.detectors.neuron_ls import listed
from holdfast.model.errors import BackendError

_DOMAIN: Final = re.compile(r"^ {0,8}domain: {1,8}(\S{1,100}?)(?:-rdm|-dgrm)?\s*$", re.M)
_OF_UNITS: Final = ("ActiveState", "SubState", "Result", "NRestarts")


def efa_domains(root: Path, text: str) -> dict[str, str]:
    """Return the distinct devices in the output of ``fi_info -p efa`` as ``domain/NAME``.

    ``pci/NAME/ADDRESS`` has the PCI function of a device, and ``hidden/ADDRESS`` that of one in
    another network namespace.
    """
    names = dict.fromkeys(_DOMAIN.findall(text))
    addresses = {name: network.pci_address(root, name) for name in names}
    hidden = network.hidden_efa(root, network.bound_functions(root))
    return {
        **{f"domain/{name}": "" for name in names},
        **{f"pci/{name}/{address}": "" for name, address in addresses.items() if address},
        **{f"hidden/{address}": "" for address in hidden},
    }


def unit_states(_root: Path, text: str) -> dict[str, str]:
    """Return ``UNIT/PROPERTY`` of each installed unit from the output of ``systemctl show``."""
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
"""Time after the timeout for a command to be killed."""

_DIAGNOSIS: Final = timedelta(minutes=5)
"""Timeout of the shortest DCGM diagnosis, which takes seconds per GPU."""

_MONITOR_PERIOD: Final = timedelta(seconds=5)
"""Default period of ``neuron-monitor``."""

_UNITS: Final = ("kubelet", "containerd", "crio", "docker", "slurmd")
_SHOWN: Final = "--property=Id,LoadState,ActiveState,SubState,Result,NRestarts"


@dataclass(frozen=True, slots=True)
class Source:
    """State source of a machine."""

    is_on: Callable[[Machine], bool]
    """Whether the machine has the hardware or software that the source reads."""

    plan: Callable[[Machine, timedelta], SourceSchedule]
    """Returns the schedule of the source for a period."""

    reads: frozenset[str] = frozenset()
    """Directories in the root of the machine that it reads itself, such as ``proc``."""

    needs_root: bool = False
    """Whether it reads less, or nothing, as another user than root."""


def plans(
    required: Mapping[str, timedelta], machine: Machine, needed: Collection[str] = ()
) -> dict[str, SourceSchedule]:
    """Return the schedules of the wanted samples by name.

    Includes the samples that ``machine`` supports and those in ``needed``, supported or not.
    """
    return {
        name: SOURCES[name].plan(machine, every)
        for name, every in required.items()
        if name in needed or SOURCES[name].is_on(machine)
    }


def journalctl(machine: Machine) -> tuple[str, ...]:
    """Return the command that reads the systemd journal of ``machine``, with its options."""
    command = machine.find("journalctl") or "journalctl"
    return (command, f"--root={machine.root}") if machine.is_elsewhere else (command,)


def _top(paths: Iterable[str]) -> set[str]:
    """Return the directories in the root that contain ``paths``."""
    return {path.partition("/")[0] for path in paths}


def _has(machine: Machine, command: str, *paths: str) -> bool:
    """Return whether a machine has a command and the files that the command reads."""
    is_there = all((machine.root / path).exists() for path in paths)
    return is_there and machine.find(command) is not None


def _nothing(_root: Path, _text: str) -> Mapping[str, str]:
    return {}


def _command(
    *argv: str,
    values: Callable[[Path, str], Mapping[str, str]] = _nothing,
    needs: tuple[str, ...] = (),
    reads: Collection[str] = (),
    timeout: timedelta = _TIMEOUT,
    needs_root: bool = False,
) -> Source:
    """Return a source of a command's output and ``values``; the machine ``needs`` some files."""

    def read(machine: Machine) -> Reading:
        program = machine.find(argv[0]) or argv[0]
        result = run_command([program, *argv[1:]], timeout=timeout)
        # Errors appear on either stream, measurements on standard output.
        text = result.stdout if result.stdout.strip() else result.stderr
        return Reading(
            text=text, values={**values(machine.root, text), "status": str(result.status)}
        )

    return Source(
        is_on=lambda machine: _has(machine, argv[0], *needs),
        plan=lambda machine, every: SourceSchedule(
            read=partial(read, machine), every=every, timeout=timeout + _GRACE
        ),
        reads=frozenset({*reads, *_top(needs)}),
        needs_root=needs_root,
    )


def _stream(*argv: str, silence: timedelta | None = None) -> Source:
    """Return a source of the output that a long-running command wrote since the last reading."""

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
    """Return a source that falls back to ``other`` on a machine without ``first``."""

    def plan(machine: Machine, every: timedelta) -> SourceSchedule:
        source = other if other.is_on(machine) and not first.is_on(machine) else first
        return source.plan(machine, every)

    return Source(
        is_on=lambda machine: first.is_on(machine) or other.is_on(machine),
        plan=plan,
        reads=first.reads | other.reads,
    )


def _if_installed(package: str, source: Source) -> Source:
    """Return ``source``, disabled unless the Python package of an extra is installed."""
    return Source(
        is_on=lambda machine: find_spec(package) is not None and source.is_on(machine),
        plan=source.plan,
        reads=source.reads,
    )


def _files(
    values: Callable[[Path], Mapping[str, str]],
    *needed: str,
    reads: Collection[str] = (),
    needs_root: bool = False,
) -> Source:
    """Return a source of small files below the root of a machine that has ``needed``."""
    return Source(
        is_on=lambda machine: all((machine.root / path).exists() for path in needed),
        plan=lambda machine, every: SourceSchedule(
            read=lambda: Reading(values=values(machine.root)), every=every
        ),
        reads=frozenset({*reads, *_top(needed)}),
        needs_root=needs_root,
    )


SOURCES: Final = {
    "nvidia-smi": _either(
        _command("nvidia-smi", "-q", "-x", values=accelerators.nvidia, reads=("proc",)),
        _if_installed(
            "pynvml",
            _command(
                sys.executable, "-m", "holdfast.adapters.host.nvml_reading",
                values=accelerators.nvidia, needs=("proc/driver/nvidia",),
            ),
        ),
    ),
    "nvlink-errors": _command("nvidia-smi", "nvlink", "-e"),
    "dcgm-health": _command("dcgmi", "health", "-c", "-j"),
    "dcgm-diag": _command("dcgmi", "diag", "-r", "1", "-j", timeout=_DIAGNOSIS, needs_root=True),
    "dcgm-policy": _stream("dcgmi", "policy", "--reg"),
    "neuron-ls": _command(
        "neuron-ls", "-j", values=lambda _root, text: listed(text), needs_root=True
    ),
    "neuron-monitor": _stream("neuron-monitor", silence=12 * _MONITOR_PERIOD),
    "neuron": _files(accelerators.neuron, "sys/devices/virtual/neuron_device"),
    "infiniband": Source(
        is_on=lambda machine: (machine.root / "sys/class/infiniband").exists(),
        plan=lambda machine, every: SourceSchedule(
            read=network.Ports(machine.root).read, every=every
        ),
        reads=frozenset({"sys"}),
    ),
    "fi-info": _command(
        "fi_info", "-p", "efa", "-t", "FI_EP_RDM",
        values=efa_domains, needs=("sys/class/infiniband",),
    ),
    "ibstat": _command("ibstat", needs=("sys/class/infiniband",), needs_root=True),
    "memory": _files(host_state.memory, "proc/meminfo", reads=("sys",)),
    "disks": _files(host_state.disks, "proc/self/mountinfo", needs_root=True),
    "edac": _files(host_state.edac, "sys/devices/system/edac/mc"),
    "clock": _files(host_state.clock),
    "processes": _files(host_state.processes, "proc/loadavg"),
    "runtime": _files(host_state.runtime, reads=("run",), needs_root=True),
    "units": _command(
        "systemctl", "show", _SHOWN, *(f"{unit}.service" for unit in _UNITS),
        values=unit_states, needs=("run/systemd/system",),
    ),
}  # fmt: skip
