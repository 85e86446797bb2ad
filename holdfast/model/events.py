"""Events, one class each, with a dotted name in the past tense."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened and that a person or a dashboard may want to know."""

    name: ClassVar[str] = "event"


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
    """A quarantined node got another remedy."""

    name: ClassVar[str] = "node.reassigned"
    node: str
    reason: str
    remedy: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDraining(Event):
    """Jobs were requested to leave a node."""

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
    """The provider refused an order for now."""

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
class NodeCheckWaits(Event):
    """A deep health check was requested and cannot start yet."""

    name: ClassVar[str] = "node.check_waits"
    node: str
    why: str
    """What it waits for, such as ``job train-7``."""

    times: int = 1
    """As in ``RepairDeferred``."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReleased(Event):
    """A node was released to jobs."""

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
class InputRejected(Event):
    """An invalid label or annotation of a node is ignored."""

    name: ClassVar[str] = "node.input_rejected"
    node: str
    key: str
    value: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInputRejected(Event):
    """A value on a job is invalid."""

    name: ClassVar[str] = "job.input_rejected"
    job: str
    key: str
    value: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesWithoutGroup(Event):
    """Nodes without an instance group label; they count as one group."""

    name: ClassVar[str] = "cluster.nodes_without_group"
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTripped(Event):
    """All repairs were paused."""

    name: ClassVar[str] = "breaker.tripped"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerClosed(Event):
    """Repairs resumed, as all nodes are healthy."""

    name: ClassVar[str] = "breaker.closed"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(Event):
    """All ranks of an attempt were launched."""

    name: ClassVar[str] = "job.attempt_started"
    job: str
    attempt: int
    nodes: tuple[str, ...]
    stopped_in: timedelta | None = None
    """Time from the failure of the previous attempt until no rank was left; None if none failed."""

    waited: timedelta | None = None
    """Time from then to the order to start this attempt."""

    started_in: timedelta | None = None
    """Time from that order until all ranks ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointChosen(Event):
    """The next attempt loads a checkpoint other than the newest, or none can be chosen."""

    name: ClassVar[str] = "job.checkpoint_chosen"
    job: str
    attempt: int
    why: str
    """Defect of each checkpoint, what was changed, and which checkpoint is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStopped(Event):
    """An attempt is being stopped."""

    name: ClassVar[str] = "job.attempt_stopped"
    job: str
    attempt: int
    kind: str
    reason: str
    node: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKilled(Event):
    """Processes of an attempt exceeded the grace period and were sent SIGKILL."""

    name: ClassVar[str] = "job.attempt_killed"
    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetried(Event):
    """A job will get another attempt; the kind shows which retries it used."""

    name: ClassVar[str] = "job.retried"
    job: str
    kind: str
    reason: str
    hardware_retries: int
    app_retries: int
    max_retries: int | None = None
    """Maximum number of hardware retries; None in events of earlier releases."""

    max_app_retries: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWaits(Event):
    """A job cannot start yet."""

    name: ClassVar[str] = "job.waits"
    job: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUnwatched(Event):
    """A running job is to be restarted when it hangs, but has reported no progress yet."""

    name: ClassVar[str] = "job.unwatched"
    job: str
    attempt: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished(Event):
    """A job has ended for good."""

    name: ClassVar[str] = "job.finished"
    job: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRestored(Event):
    """A damaged database was moved aside, and its backup, or an empty one, took its place."""

    name: ClassVar[str] = "engine.state_restored"
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed(Event):
    """A backend could not be reached; the call is retried."""

    name: ClassVar[str] = "engine.call_failed"
    what: str
    error: str
    times: int = 1
    """Number of failures since the last report."""
