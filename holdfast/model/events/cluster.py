"""Events of a whole cluster, and of the controller itself."""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from holdfast.model.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesWithoutGroup(Event):
    """Nodes without an instance group label; they count as one group."""

    name: ClassVar[str] = "cluster.nodes_without_group"
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTripped(Event):
    """The circuit breaker opened: all repairs are paused."""

    name: ClassVar[str] = "breaker.tripped"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerClosed(Event):
    """The circuit breaker closed, as all nodes are healthy: repairs resumed."""

    name: ClassVar[str] = "breaker.closed"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRestored(Event):
    """A damaged database was moved aside, and its backup, or an empty one, took its place."""

    name: ClassVar[str] = "engine.state_restored"
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesCorrected(Event):
    """Timeouts of a node or a job count from another time, because the clock was set."""

    name: ClassVar[str] = "engine.times_corrected"
    what: str
    """Name of the node or of the job."""

    ahead: timedelta
    """How far in the future the time was. Negative: the clock was set forward by so much, and the
    timeouts pass later."""

    times: int = 1
    """Number of corrections since the last report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed(Event):
    """A backend could not be reached; the call is retried."""

    name: ClassVar[str] = "engine.call_failed"
    what: str
    error: str
    times: int = 1
    """Number of failures since the last report."""
