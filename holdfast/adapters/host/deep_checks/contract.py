"""What a part of a node's deep health check is: a command, and how its output is judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.commands import Result, never
from holdfast.adapters.host.machine import Machine
from holdfast.detectors.instance_types import Equipment
from holdfast.detectors.judgement import Judgement
from holdfast.detectors.thresholds import Thresholds
from holdfast.model.deep_checks import Level

STRESS_TIME: Final = {
    Level.QUICK: timedelta(seconds=10),
    Level.STANDARD: timedelta(seconds=60),
    Level.LONG: timedelta(seconds=300),
}
"""How long each part of the machine is kept busy. HyperPod's deep health check takes 60 s."""

PAIR_TIME: Final = timedelta(seconds=1)
"""Long enough for one TCP connection to reach its speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The node that is checked, and how."""

    machine: Machine
    equipment: Equipment
    thresholds: Thresholds
    level: Level
    stress_time: timedelta
    disk: Path
    """A directory on the disk that is written to."""

    fabric_provider: str
    """Libfabric's provider for the tests between nodes."""

    pair_time: timedelta = PAIR_TIME
    """How long latency and bandwidth are measured between nodes, each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What the output of a part's command means."""

    judgement: Judgement
    measured: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCommand:
    """A command to run."""

    argv: tuple[str, ...]
    takes: timedelta
    """About how long, for those who wait."""

    timeout: timedelta
    judge: Callable[[Result, datetime], CommandResult]
    directory: Path | None = None
    """Where a folder of its own is made for it to run in; nowhere in particular if None."""

    if_hung: str = ""
    """What it means that it does not end; empty if it means nothing."""

    is_over: Callable[[], bool] = never
    """Asked while it runs: whether it is to be broken off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What takes more than one command."""

    argv: tuple[str, ...]
    """The first of them."""

    takes: timedelta
    make: Callable[[datetime], CommandResult]
    """Runs them all, bounded in time, and judges what they say. Raises BackendError if they say
    nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Why a part is not begun."""

    why: str


Work = CheckCommand | Series
"""What is done for a part that is begun."""

Part = Callable[[Target], Work | Skip]


def missing_tool(*names: str) -> Skip:
    """A tool that is not installed is told, and not held against the node."""
    found = (
        f"{names[0]} not found: install it"
        if len(names) == 1
        else (f"neither {' nor '.join(names)} found: install one")
    )
    return Skip(why=f"{found} to have this checked")
