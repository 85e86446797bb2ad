"""Nodes as the decision core sees them, and their stored records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.model.deep_checks import KindResult, Outcome, combined
from holdfast.model.health import Fault, Remedy, Urgency
from holdfast.model.names import DeepCheck, Reason
from holdfast.model.requests import Request


class Phase(StrEnum):
    """Phase of a node between joining and leaving."""

    JOINING = "joining"
    """Known, but its agent has not reported it healthy yet (HyperPod's basic checks)."""

    CHECKING = "checking"
    """Under a deep health check; not available to jobs."""

    SCHEDULABLE = "schedulable"
    QUARANTINED = "quarantined"
    """Marked and cordoned; its repair has not started."""

    DRAINING = "draining"
    REBOOTING = "rebooting"
    REPLACING = "replacing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remediation:
    """One remediation of one node, from quarantine to release; stored with the node."""

    incident_id: str
    opened_at: datetime
    condition: str
    reason: str
    remedy: Remedy
    """Remedy to carry out; NONE for a deep health check alone."""

    urgency: Urgency
    repairs: int = 0
    """Number of repairs ordered in this remediation; with ``incident_id`` it identifies each
    order."""

    replacements: int = 0
    """Number of replacement orders for this machine; more than one if an earlier one never came."""

    ordered_at: datetime | None = None
    """Time at which the provider accepted the present order; None until then."""

    retry_at: datetime | None = None
    """Earliest time of the next call to the provider."""

    is_outcome_unknown: bool = False
    """Whether the present order may have been carried out although the provider did not accept it:
    its response was lost. Later observations decide."""

    is_machine_removed: bool = False
    """Whether the provider has confirmed that the machine does not exist any more: nothing can run
    on it, whatever its Node object and its pods show."""

    machine: str = ""
    """``NodeView.machine`` when the present repair was ordered: a change shows that it was done."""

    request_id: str = ""
    """Id of the request that opened the remediation, if a person did."""

    @property
    def token(self) -> str:
        """Idempotency token of the present order."""
        return f"{self.incident_id}/{self.repairs}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFault:
    """A remediation that has ended. Those that people requested are not kept."""

    opened_at: datetime
    closed_at: datetime
    reason: str
    remedy: Remedy
    """Remedy that was carried out; NONE if the fault disappeared before the repair started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerCheck:
    """A deep health check to which the straggler of a job has led."""

    job: str
    at: datetime
    """Time at which the request was accepted: the node was quarantined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """Holdfast's own state of a node. Stored with the node, written only by Holdfast."""

    phase: Phase
    phase_since: datetime
    remediation: Remediation | None = None
    history: tuple[PastFault, ...] = ()
    """Earlier remediations of this machine, oldest first, at most ``HISTORY_LIMIT``."""

    cleared_at: datetime | None = None
    """Faults since before this time are cleared (a person released the node)."""

    checked_machine: str = ""
    """``NodeView.machine`` that passed its last deep health check."""

    checks: tuple["CheckResult", ...] = ()
    """Deep health checks of this machine that have ended, oldest first, at most
    ``CHECKS_LIMIT``."""

    kinds: tuple[DeepCheck, ...] = ()
    """Kinds of the pending or running deep health check; those of the policy if empty."""

    pairing: "Pairing | None" = None
    """Its tests with other nodes; after a check has ended, its tests remain, as they are evidence
    about the other nodes as well."""

    replaced_at: tuple[datetime, ...] = ()
    """Times at which replacements of the machine behind this node were ordered in the last day,
    oldest first, without those that a person requested."""

    straggler_checks: tuple[StragglerCheck, ...] = ()
    """Checks of the last day to which stragglers of jobs have led, oldest first; they count for the
    limits of later ones."""

    agent_silent_since: datetime | None = None
    """Time since which the agent counts as silent although the scheduler's daemon responds; None
    while the agent reports."""


HISTORY_LIMIT = 20
CHECKS_LIMIT = 10
"""A record is an annotation of a Kubernetes node, and a check may measure half a dozen values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Result of the deep health check of a node."""

    passed: bool
    ended_at: datetime
    detail: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Measured values, by names that end with the unit; empty if unknown."""

    bounds: Mapping[str, float] = field(default_factory=dict)
    """Thresholds of those measured values that have one."""

    partners: tuple[str, ...] = ()
    """Nodes that it was tested with."""

    kinds: tuple[KindResult, ...] = ()
    """Result of each kind of check; empty if the check does not report kinds."""

    @property
    def outcome(self) -> Outcome:
        """Outcome; passed only if something was run and passed."""
        if not self.passed:
            return Outcome.FAILED
        return combined(one.outcome for one in self.kinds) if self.kinds else Outcome.PASSED

    @property
    def remarks(self) -> str:
        """Remarks on the result: what was skipped and why; empty if all was run."""
        notable = [str(one) for one in self.kinds if one.detail and self.passed]
        return "; ".join([*([self.detail] if self.detail else []), *notable])


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOutcome:
    """Result of one test of a node with another."""

    partner: str
    passed: bool | None
    """None if it was inconclusive: a tool is missing, or the other node left."""

    ended_at: datetime
    detail: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)
    """As in ``CheckResult``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """State of a node's tests with other nodes during one deep health check.

    A test is stored with one of its nodes only, the one for which it was started, so that it starts
    and ends with one write.
    """

    since: datetime
    own: CheckResult | None = None
    """Result of the node's own check before; None if it had none."""

    partner: str = ""
    """Peer of the running test that is stored here; empty if there is none."""

    began_at: datetime | None = None
    """Start of that test."""

    tests: tuple[PairOutcome, ...] = ()
    """Ended tests that were started for this node, oldest first."""


Pool = tuple[str, str]
"""Instance group and instance type: nodes of one pool can be compared with each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node in a snapshot."""

    name: str
    """Name of the node on the platform."""

    provider_id: str
    """Machine behind the node, e.g. ``i-0123456789abcdef0``."""

    record: NodeRecord
    """Phase and remediation of the node."""

    addresses: tuple[str, ...] = ()
    """Host names and IP addresses that the platform knows of it, beside its name: an order is given
    only for a machine that has one of them."""

    group: str = ""
    """Instance group; empty if unknown."""

    instance_type: str = ""
    """Instance type such as ``p5.48xlarge``; empty if unknown."""

    boot_id: str = ""
    """Changes with every boot of the machine; empty if unknown."""

    faults: tuple[Fault, ...] = ()
    """Present faults that the node's agent reports."""

    suspects: tuple[Fault, ...] = ()
    """What would be among ``faults`` if a reading that cannot be forged supported it."""

    drill_until: datetime | None = None
    """Until when log lines that can be forged count on the node; None without a drill."""

    heartbeat_at: datetime | None = None
    """Time of the agent's last heartbeat in this boot; None before the first one. A backend that
    keeps this in memory uses its own start time for nodes that had joined before."""

    join_error: str = ""
    """Platform's error message for a failed node start; empty if it did not fail."""

    reported_at: datetime | None = None
    """Time of the agent's last report or heartbeat: what its kernel logged until then is among
    ``faults``. None before the first one, and where each report arrives within milliseconds."""

    answered_at: datetime | None = None
    """Time of the last response of the scheduler's daemon on the node (kubelet, slurmd); None where
    there is no such daemon. It is no evidence about the agent."""

    observed_since: datetime | None = None
    """Since when the platform could be read without an outage; None if unknown. Neither the node
    nor its agent may have been able to report before."""

    is_ready: bool | None = None
    """Whether that daemon accepts jobs; None where there is no such daemon."""

    powered_on: bool | None = None
    """Power state that the machine provider reports; None if unknown."""

    request: Request | None = None
    """Pending request of a person; None if there is none."""

    leaving: str = ""
    """Why it is being removed or shut down on request; empty if it is not."""

    leaving_reason: Reason = Reason.NODE_REMOVED
    """Reason with which jobs on it are then stopped."""

    pause_reason: str = ""
    """Why a person wants no repair to start on the node now; empty if nobody does."""

    closed: str = ""
    """Why its scheduler places no jobs on it although Holdfast does not prevent it: who closed it,
    and the given reason; empty if nobody did, or if unknown."""

    running_jobs: tuple[str, ...] = ()
    """Names of the jobs that run on it."""

    is_idle: bool = False
    """Whether certainly no job runs on it. Determined only while needed: the node is due for its
    next check, a check of it was requested, or a node of its group needs a test peer."""

    check: CheckResult | None = None
    """Result of the deep health check started in this phase, once there is one."""

    check_began_at: datetime | None = None
    """When that check, or the test with another node that is stored with this one, began to run;
    None if it has not, or where it begins with the phase."""

    check_pending: str = ""
    """Why that check or test has not begun, or could not be run: no evidence about the node. Empty
    if it runs, or has a result."""

    pair: PairOutcome | None = None
    """Result of the test with another node that is stored with this one, once there is one."""

    replaces: str = ""
    """Name of the node that this one was ordered to replace."""

    @property
    def machine(self) -> str:
        """Identifies one boot of one machine; changes when it is rebooted or replaced."""
        return f"{self.provider_id}#{self.boot_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Circuit breaker against a wrong detector: while it is open, no repair starts."""

    tripped_at: datetime | None = None
    reason: str = ""
    reset_at: datetime | None = None
    """Time at which a person last closed it; earlier faults no longer count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A snapshot of the whole cluster."""

    nodes: tuple[NodeView, ...]
    breaker: Breaker = field(default_factory=Breaker)
    offenders: frozenset[str] = frozenset()
    """``provider_id`` of the machines that were replaced because they kept faulting."""

    unreadable: frozenset[str] = frozenset()
    """Nodes whose record is damaged: Holdfast leaves them unchanged."""

    read_at: datetime | None = None
    """The present time by which heartbeats are dated; None if no time was read."""
