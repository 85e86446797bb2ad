"""Nodes as the decision core sees them, and what it remembers about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.model.deep_checks import KindResult, Outcome, combined
from holdfast.model.health import Fault, Remedy, Urgency
from holdfast.model.names import DeepCheck, Reason
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
class Remediation:
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

    is_outcome_unknown: bool = False
    """Whether the present order may have been carried out although the provider did not accept it:
    its response was lost. What is observed afterwards decides."""

    is_machine_gone: bool = False
    """Whether the provider has confirmed that the machine does not exist any more: nothing can run
    on it, whatever its Node object and its pods say."""

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
    remediation: Remediation | None = None
    history: tuple[PastFault, ...] = ()
    """Earlier courses of this machine, oldest first, at most ``HISTORY_LIMIT``."""

    cleared_at: datetime | None = None
    """Faults since before this time are forgiven (a person released the node)."""

    checked_machine: str = ""
    """The ``NodeView.machine`` that passed its last deep health check."""

    checks: tuple["CheckResult", ...] = ()
    """Deep health checks of this machine that are over, oldest first, at most ``CHECKS_LIMIT``."""

    kinds: tuple[DeepCheck, ...] = ()
    """What the deep health check that it is to have, or is under, is made of; what the policy says
    if empty."""

    pairing: "Pairing | None" = None
    """Its tests with other nodes; those of the last check once that is over, as they speak for the
    other ends as well."""

    agent_silent_since: datetime | None = None
    """Since when the agent counts as silent although the scheduler's daemon answers; None while
    the agent reports."""


HISTORY_LIMIT = 20
CHECKS_LIMIT = 10
"""A record is an annotation of a Kubernetes node, and a check may measure half a dozen values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """How the deep health check of a node ended."""

    passed: bool
    ended_at: datetime
    detail: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
    """What was measured, by names that end with the unit; empty if that is not known."""

    bounds: Mapping[str, float] = field(default_factory=dict)
    """The thresholds that it was judged by, of those measures that have one."""

    partners: tuple[str, ...] = ()
    """The nodes that it was tested with."""

    kinds: tuple[KindResult, ...] = ()
    """How each kind of check ended that was to be made; empty if the check does not report it."""

    @property
    def outcome(self) -> Outcome:
        """Passed only if something was run and passed."""
        if not self.passed:
            return Outcome.FAILED
        return combined(one.outcome for one in self.kinds) if self.kinds else Outcome.PASSED

    @property
    def remarks(self) -> str:
        """What is to be said of the result: what was skipped and why; empty if all was run."""
        notable = [str(one) for one in self.kinds if one.detail and self.passed]
        return "; ".join([*([self.detail] if self.detail else []), *notable])


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOutcome:
    """How one test of a node with another ended."""

    partner: str
    passed: bool | None
    """None if it says nothing: a tool is missing, or the other end left."""

    ended_at: datetime
    detail: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)
    """As in ``CheckResult``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The part that a node has in the tests between nodes, during one deep health check.

    A test is stored with one of its nodes only, the one that it was begun for, so that it begins
    and ends with one write.
    """

    since: datetime
    own: CheckResult | None = None
    """How the check of the node alone ended before; None if it had none."""

    partner: str = ""
    """The other end of the test under way that is stored here; empty if there is none."""

    began_at: datetime | None = None
    """When that test began."""

    tests: tuple[PairOutcome, ...] = ()
    """Those that are over and were begun for this node, oldest first."""


Pool = tuple[str, str]
"""Instance group and instance type: nodes of one pool can be compared with each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node in a snapshot."""

    name: str
    provider_id: str
    """The machine behind the node, e.g. ``i-0123456789abcdef0``."""

    record: NodeRecord
    group: str = ""
    """The instance group that it belongs to; empty if that is not known."""

    instance_type: str = ""
    """Such as ``p5.48xlarge``; empty if that is not known."""

    boot_id: str = ""
    """Changes with every boot of the machine; empty while unknown."""

    faults: tuple[Fault, ...] = ()
    """What the node's agent holds true now."""

    heartbeat_at: datetime | None = None
    """When the agent was last heard in this boot; None before its first word. A backend that
    keeps this in memory reports its own start for nodes that had joined before."""

    join_error: str = ""
    """Why the platform itself has given up on the node's coming, in its own words; empty while it
    has not."""

    answered_at: datetime | None = None
    """When the scheduler's daemon on the node (kubelet, slurmd) last answered; None where there is
    no such daemon. It says nothing about the agent."""

    is_ready: bool | None = None
    """Whether that daemon accepts jobs; None where there is no such daemon."""

    powered_on: bool | None = None
    """What the owner of the machine says; None where nobody knows."""

    request: Request | None = None
    leaving: str = ""
    """Why it is being removed or shut down on request; empty if it is not."""

    leaving_reason: Reason = Reason.NODE_REMOVED
    """Why jobs on it are stopped then."""

    held: str = ""
    """Why a person wants no repair to begin on the node now; empty if nobody does."""

    closed: str = ""
    """Why its scheduler places no jobs on it though Holdfast does not keep it from them: who closed
    it, and the reason given; empty if nobody did, or that is not known."""

    running_jobs: tuple[str, ...] = ()
    is_idle: bool = False
    """Whether no job runs on it for sure; looked at only while that matters: it is due for its next
    check, a check of it was requested, or a node of its group is to be tested with another."""

    check: CheckResult | None = None
    """Result of the deep health check begun in this phase, once there is one."""

    pair: PairOutcome | None = None
    """Result of the test with another node that is stored with this one, once there is one."""

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
