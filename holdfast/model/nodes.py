"""Nodes as the decision core sees them, and what it remembers about them."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.model.health import Fault, Remedy, Urgency
from holdfast.model.requests import Request


class Phase(StrEnum):
    """Where a node stands between joining and leaving."""

    JOINING = "joining"
    """Known, but its agent has not reported it fit yet (HyperPod's basic checks)."""

    CHECKING = "checking"
    """Under a deep health check; not given to jobs."""

    SCHEDULABLE = "schedulable"
    QUARANTINED = "quarantined"
    """Marked and cordoned; its repair has not begun."""

    DRAINING = "draining"
    REBOOTING = "rebooting"
    REPLACING = "replacing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One remediation of one node, from quarantine to release. It lives with the node."""

    incident_id: str
    opened_at: datetime
    condition: str
    reason: str
    remedy: Remedy
    """What will be done; NONE for a deep health check alone."""

    urgency: Urgency
    repairs: int = 0
    """Repairs that were ordered in this course; with ``incident_id`` it names each order."""

    replacements: int = 0
    """Those of this machine that were ordered; more than one if an earlier one never came."""

    ordered_at: datetime | None = None
    """When the provider accepted the present order; None until then."""

    retry_at: datetime | None = None
    """Not to call the provider again before this time."""

    machine: str = ""
    """``NodeView.machine`` when the present repair was ordered: a change means it was done."""

    request_id: str = ""
    """The request that opened the course, if a person did."""

    @property
    def token(self) -> str:
        """Names the present order, so that a provider can tell a repetition from a new one."""
        return f"{self.incident_id}/{self.repairs}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFault:
    """A course that is over. Those that people requested are not kept."""

    opened_at: datetime
    closed_at: datetime
    reason: str
    remedy: Remedy
    """What was done; NONE if the fault went away before its repair began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """What Holdfast itself remembers about a node. Stored with the node, written only by us."""

    phase: Phase
    phase_since: datetime
    course: Course | None = None
    history: tuple[PastFault, ...] = ()
    """Earlier courses of this machine, oldest first, at most ``HISTORY_LIMIT``."""

    cleared_at: datetime | None = None
    """Faults since before this time are forgiven (a person released the node)."""

    checked_machine: str = ""
    """The ``NodeView.machine`` that passed its last deep health check."""


HISTORY_LIMIT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """How the deep health check of a node ended."""

    passed: bool
    ended_at: datetime
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node in a snapshot."""

    name: str
    provider_id: str
    """The machine behind the node, e.g. ``i-0123456789abcdef0``."""

    record: NodeRecord
    boot_id: str = ""
    """Changes with every boot of the machine; empty while unknown."""

    faults: tuple[Fault, ...] = ()
    """What the node's agent holds true now."""

    heartbeat_at: datetime | None = None
    """When the agent was last heard in this boot; None before its first word. A backend that
    keeps this in memory reports its own start for nodes that had joined before."""

    powered_on: bool | None = None
    """What the owner of the machine says; None where nobody knows."""

    request: Request | None = None
    held: str = ""
    """Why a person wants no repair to begin on the node now; empty if nobody does."""

    running_jobs: tuple[str, ...] = ()
    check: CheckResult | None = None
    """Result of the deep health check begun in this phase, once there is one."""

    replaces: str = ""
    """Name of the node that this one was ordered to replace."""

    @property
    def machine(self) -> str:
        """Names one boot of one machine; changes when it is rebooted or replaced."""
        return f"{self.provider_id}#{self.boot_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The fuse against a wrong detector: while it is open, no repair begins."""

    tripped_at: datetime | None = None
    reason: str = ""
    reset_at: datetime | None = None
    """When a person last closed it; faults from before no longer count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A snapshot of the whole cluster."""

    nodes: tuple[NodeView, ...]
    breaker: Breaker = field(default_factory=Breaker)
    offenders: frozenset[str] = frozenset()
    """``provider_id`` of the machines that were replaced for faulting again and again."""

    unreadable: frozenset[str] = frozenset()
    """Nodes that are there but whose record is damaged: nothing is done with them."""
