"""Events of deep health checks and network tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from holdfast.model.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheckWaits(Event):
    """A deep health check was requested and cannot start yet."""

    name: ClassVar[str] = "node.check_waits"
    node: str
    why: str
    """What it waits for, such as ``job train-7``."""

    times: int = 1
    """Number of times that this was decided since the last report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheckBegun(Event):
    """A deep health check was started."""

    name: ClassVar[str] = "node.check_begun"
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePairTested(Event):
    """A test between two nodes under a deep health check ended."""

    name: ClassVar[str] = "node.pair_tested"
    node: str
    partner: str
    passed: bool | None
    """None if it was inconclusive."""

    detail: str
    measured: Mapping[str, float]
    """Values by names that end with the unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheckPassed(Event):
    """A deep health check passed."""

    name: ClassVar[str] = "node.check_passed"
    node: str
    detail: str
    """What was not run, and why; usually empty."""

    measured: Mapping[str, float]
    """Values by names that end with the unit."""

    took: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheckSkipped(Event):
    """No part of a deep health check could be run: the state of the node is unknown."""

    name: ClassVar[str] = "node.check_skipped"
    node: str
    detail: str
    """What was not run, and why."""

    took: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheckFailed(Event):
    """A deep health check failed or was aborted."""

    name: ClassVar[str] = "node.check_failed"
    node: str
    detail: str
    measured: Mapping[str, float]
    """Values by names that end with the unit."""

    took: timedelta
