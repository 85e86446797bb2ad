"""Events of nodes and their repairs."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from holdfast.model.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuarantined(Event):
    """A node was marked and cordoned."""

    name: ClassVar[str] = "node.quarantined"
    node: str
    reason: str
    remedy: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReassigned(Event):
    """The remedy of a quarantined node changed."""

    name: ClassVar[str] = "node.reassigned"
    node: str
    reason: str
    remedy: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDraining(Event):
    """The drain of a node has started."""

    name: ClassVar[str] = "node.draining"
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOrdered(Event):
    """The provider accepted an order."""

    name: ClassVar[str] = "repair.ordered"
    node: str
    remedy: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPostponed(Event):
    """The provider refused an order, which is retried later."""

    name: ClassVar[str] = "repair.postponed"
    node: str
    remedy: str
    error: str
    retry_after: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOverdue(Event):
    """An accepted order had no effect in time; the next step follows."""

    name: ClassVar[str] = "repair.overdue"
    node: str
    remedy: str
    waited: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairDeferred(Event):
    """A repair is due but may not start."""

    name: ClassVar[str] = "repair.deferred"
    node: str
    why: str
    times: int = 1
    """Number of times that this was decided since the last report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRejoined(Event):
    """A repaired node is back and will be checked."""

    name: ClassVar[str] = "node.rejoined"
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReplaced(Event):
    """A replacement took over from a node that has left."""

    name: ClassVar[str] = "node.replaced"
    node: str
    successor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVanished(Event):
    """A node under repair disappeared without being replaced."""

    name: ClassVar[str] = "node.vanished"
    node: str
    reason: str
    """Reason of the remediation, which ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSuspected(Event):
    """Jobs keep failing on a node that reports no fault."""

    name: ClassVar[str] = "node.suspected"
    node: str
    failures: int
    evidence: str
    is_checked: bool
    """Whether a deep health check was requested; none may be configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultUncorroborated(Event):
    """A log line that may be forged reports a fault of a node, and no other reading does."""

    name: ClassVar[str] = "node.fault_uncorroborated"
    node: str
    evidence: str
    is_checked: bool
    """Whether a deep health check was requested; none may be configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerSuspected(Event):
    """The node of a job's straggler is checked once its jobs have ended; they continue."""

    name: ClassVar[str] = "node.straggler_suspected"
    node: str
    evidence: str
    is_checked: bool
    """Whether a deep health check was requested; none may be configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReleased(Event):
    """A node is schedulable again."""

    name: ClassVar[str] = "node.released"
    node: str
    after: str
    """Reason of the remediation that ended; empty for a new node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgentSilent(Event):
    """The agent of a node stopped reporting while the scheduler's daemon on the node responds."""

    name: ClassVar[str] = "node.agent_silent"
    node: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgentReports(Event):
    """The agent of a node reports again."""

    name: ClassVar[str] = "node.agent_reports"
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDrillActive(Event):
    """A drill is active on a node: until its end, log lines that may be forged lead to repairs."""

    name: ClassVar[str] = "node.drill_active"
    node: str
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRejected(Event):
    """An invalid label or annotation of a node is ignored."""

    name: ClassVar[str] = "node.input_rejected"
    node: str
    key: str
    value: str
    expected: str
