"""Contract of the parts of a deep health check: a command and the evaluation of its output."""

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
from holdfast.model.node_checks import Level

STRESS_TIME: Final = {
    Level.QUICK: timedelta(seconds=10),
    Level.STANDARD: timedelta(seconds=60),
    Level.LONG: timedelta(seconds=300),
}
"""Time for which each part loads the machine. HyperPod's deep health check takes 60 s."""

PAIR_TIME: Final = timedelta(seconds=1)
"""Long enough for one TCP connection to reach its full rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """Deterministic steps of a node."""

    command: tuple[str, ...] = ()
    """Command that prints their results; empty for the built-in steps."""

    steps: int = 20
    timeout: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Node to check, with the settings of the check."""

    machine: Machine
    equipment: Equipment
    thresholds: Thresholds
    level: Level
    stress_time: timedelta
    disk: Path
    """Directory on the disk to test."""

    fabric_provider: str
    """Libfabric provider of the tests between nodes."""

    pair_time: timedelta = PAIR_TIME
    """Duration of the latency and bandwidth measurements between nodes, each."""

    replay: ReplayPlan = ReplayPlan()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """Evaluated output of a part's command."""

    judgement: Judgement
    measured: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCommand:
    """Command of a part."""

    argv: tuple[str, ...]
    takes: timedelta
    """Approximate duration, shown to users."""

    timeout: timedelta
    judge: Callable[[Result, datetime], CommandResult]
    directory: Path | None = None
    """Directory in which a temporary working directory is created; None for no requirement."""

    if_hung: str = ""
    """What a hang means; empty if it means nothing."""

    is_over: Callable[[], bool] = never
    """Polled while the command runs; True cancels it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Part that takes more than one command."""

    argv: tuple[str, ...]
    """First of the commands."""

    takes: timedelta
    make: Callable[[datetime], CommandResult]
    """Runs all of them within a time limit and evaluates their output. Raises BackendError if the
    output is unusable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Reason why a part is not started."""

    why: str


Work = CheckCommand | Series
"""What a started part runs."""

Part = Callable[[Target], Work | Skip]


def missing_tool(*names: str) -> Skip:
    """Return a skip for a tool that is not installed; it does not count against the node."""
    found = (
        f"{names[0]} not found: install it"
        if len(names) == 1
        else (f"neither {' nor '.join(names)} found: install one")
    )
    return Skip(why=f"{found} to run this check")
