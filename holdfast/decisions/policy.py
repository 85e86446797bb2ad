"""Every knob of the decision core, with its unit and the reason for its default."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from holdfast.kit.quota import Quota
from holdfast.model.health import Remedy


class RecoveryMode(StrEnum):
    """HyperPod's ``NodeRecovery``."""

    AUTOMATIC = "Automatic"
    NONE = "None"
    """Mark faulty nodes, repair none; requests of people are still carried out."""


class SilentAgentAction(StrEnum):
    """What to do about a node whose agent is silent while the scheduler's daemon on it answers."""

    WARN = "warn"
    """Set the condition and report an event; the node stays in service."""

    CORDON = "cordon"
    """Also keep new jobs off the node until its agent reports again; running jobs continue."""

    DEEP_CHECK = "deep-check"
    """As ``cordon``; once no job runs on the node, it also gets a deep health check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationPolicy:
    """How nodes are judged and repaired."""

    node_recovery: RecoveryMode = RecoveryMode.AUTOMATIC
    """HyperPod's default, and its recommendation."""

    max_unavailable: Quota = Quota(percent=20.0)
    """How many nodes may be out of service for repair at once: a count, or a percentage of the
    cluster, rounded up. 20 % is the share at which Karpenter and EKS node repair stop, too."""

    drain_timeout: timedelta = timedelta(minutes=15)
    """How long jobs may take to leave a node; on a lost node ``heartbeat_timeout``, if that is
    shorter. After that, the repair begins all the same."""

    heartbeat_timeout: timedelta = timedelta(seconds=40)
    """Silence after which a node counts as lost: of its agent and, where there is one, of the
    scheduler's daemon (kubelet, slurmd). Kubernetes' node controller waits 40 s by default (50 s
    since 1.32). While the daemon answers, only the agent counts as silent; see
    ``silent_agent_action``."""

    silent_remedy: Remedy = Remedy.REPLACE
    """For a node that went silent or dark. A machine that does not answer may be in any state;
    only another machine is sure to help."""

    silent_agent_action: SilentAgentAction = SilentAgentAction.CORDON
    """What to do when only the agent of a node is silent for ``heartbeat_timeout``: ``warn``,
    ``cordon`` or ``deep-check``. The running jobs continue in every case. At most
    ``max_unavailable`` nodes in service are cordoned for it: when more agents are silent at once,
    the installation of the agents is the likelier cause, and the other nodes only get the condition
    and the event."""

    join_timeout: timedelta = timedelta(minutes=20)
    """From the phase ``joining`` to the agent's first word. Instances with many accelerators take
    10 to 15 minutes to boot."""

    reboot_timeout: timedelta = timedelta(minutes=10)
    """From the order of a reboot to the agent's first word after it; then the machine is
    replaced. HyperPod's reboots take 1 to 3 minutes. A reboot that the provider refuses for so
    long, for example because it cannot reboot at all, becomes a replacement, too."""

    reboot_window: timedelta = timedelta(hours=1)
    """A fault within this time after a reboot shows that the reboot did not help: the machine is
    replaced."""

    replace_timeout: timedelta = timedelta(hours=1)
    """From the order of a replacement to its appearance; then that is told, and it is ordered
    again, with twice the time, up to eight times. HyperPod's replacements take 20 to 30 minutes."""

    offender_faults: int = 3
    """The number of faults within ``offender_window`` with which a machine becomes a repeat
    offender: it is replaced, and not taken back."""

    offender_window: timedelta = timedelta(days=7)
    """NVSentinel counts remediations over 7 days, too."""

    breaker_share: float = 50.0
    """Percentage of nodes, above which newly faulty nodes within ``breaker_window`` stop all
    repairs: then the detector is the likelier culprit. NVSentinel's figure."""

    breaker_window: timedelta = timedelta(minutes=5)
    """NVSentinel's figure."""

    breaker_min_nodes: int = 5
    """Fewer faulty nodes than this never trip the breaker: half of a very small cluster can well
    fail by chance."""

    breaker_close_after: timedelta = timedelta(minutes=30)
    """How long all nodes have to be schedulable without a fault, while the breaker is open, until
    it closes by itself; 0s for never: then only a person closes it. Six times ``breaker_window``:
    a storm of faults that returns opens it again."""

    provider_retry: timedelta = timedelta(seconds=30)
    """Pause after a provider refused an order for the first time, unless it asks for another.
    Pauses double while it refuses."""

    provider_retry_max: timedelta = timedelta(minutes=10)
    """The longest pause that Holdfast makes by itself. HyperPod, too, tries every 10 minutes where
    there is no capacity."""

    deep_check_on_start: bool = False
    """Whether nodes pass a deep health check when they join and after a repair."""

    deep_check_groups: tuple[str, ...] = ()
    """The instance groups for which ``deep_check_on_start`` and ``deep_check_every`` hold; all
    nodes if left out. HyperPod sets ``OnStartDeepHealthChecks`` by instance group, too."""

    deep_check_timeout: timedelta = timedelta(hours=3)
    """HyperPod's deep health checks take about 2 hours. A node that never reports back failed."""

    deep_check_pairs: bool = False
    """Whether a deep health check goes on with tests between nodes, once a node has passed alone:
    with others of its group that are under a check, or with one that has no job. A check for which
    ``InstanceConnectivity`` was asked for has them in any case."""

    pair_timeout: timedelta = timedelta(minutes=15)
    """How long one test between two nodes may take; one that does not end has failed, as
    collectives do not end over a bad link. HyperPod's NCCL test takes 5 to 15 minutes."""

    deep_check_every: timedelta | None = None
    """How long after its last deep health check a node is checked again, once no job runs on it;
    left out, never. Soperator checks idle nodes twice a day."""

    max_checking: Quota = Quota(percent=100.0)
    """How many nodes may be under a deep health check at once: a count, or a percentage of the
    cluster, rounded up. HyperPod checks all nodes of a new cluster at once. Of nodes that wait for
    their next check by ``deep_check_every``, one is taken at a time."""

    incident_retention: timedelta = timedelta(days=90)
    """How long after its end an incident is kept. Open incidents never expire."""

    incidents_kept: int = 2000
    """How many incidents that have ended are kept; beyond that the oldest are deleted. On
    Kubernetes each is an object in etcd, of about 1 KiB."""

    def __post_init__(self) -> None:
        for key in (
            "incident_retention",
            "heartbeat_timeout",
            "join_timeout",
            "reboot_timeout",
            "replace_timeout",
            "provider_retry",
            "provider_retry_max",
            "deep_check_timeout",
            "pair_timeout",
            "breaker_window",
            "offender_window",
        ):
            if getattr(self, key) <= timedelta(0):
                raise ValueError(f"{key} must be longer than 0s, got {getattr(self, key)}")
        for key in ("drain_timeout", "reboot_window", "breaker_close_after"):
            if getattr(self, key) < timedelta(0):
                raise ValueError(f"{key} must not be negative, got {getattr(self, key)}")
        if self.deep_check_every is not None and self.deep_check_every <= timedelta(0):
            raise ValueError(
                f"deep_check_every must be longer than 0s, got {self.deep_check_every}"
            )
        if self.max_checking.of(1) < 1:
            raise ValueError(f"max_checking must allow at least one node, got {self.max_checking}")
        if not 0 < self.breaker_share <= 100:
            raise ValueError(
                f"breaker_share must be above 0 and at most 100, got {self.breaker_share}"
            )
        for key in ("offender_faults", "breaker_min_nodes", "incidents_kept"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be 1 or more, got {getattr(self, key)}")
        if self.silent_remedy not in (Remedy.REBOOT, Remedy.REPLACE):
            raise ValueError(f"silent_remedy must be reboot or replace, got {self.silent_remedy}")
        _refuse_disorder(self, "provider_retry", "provider_retry_max")
        if self.deep_check_groups and not (self.deep_check_on_start or self.deep_check_every):
            raise ValueError(
                "deep_check_groups needs deep_check_on_start or deep_check_every: without them no "
                "group is checked"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """How jobs are resumed. What a single job may ask for itself is in ``JobSpec``."""

    wait_for_nodes: timedelta = timedelta(hours=2)
    """How long a job may wait for enough schedulable nodes before it fails. Longer than
    ``replace_timeout``, so that one replacement may be ordered twice."""

    launch_timeout: timedelta = timedelta(minutes=10)
    """How long the launch of an attempt is tried again before it counts as failed."""

    settle: timedelta = timedelta(milliseconds=200)
    """Between the end of an attempt and the verdict on it: a kernel line may come a little after
    the crash that it explains."""

    failure_margin: timedelta = timedelta(seconds=2)
    """After a rank of a job that has failed before has failed again, how long the others run on
    before the attempt is stopped: if they fail by themselves meanwhile, the node of the first is
    not to blame. Interpreters that all fail at once end within a second. With 0, a job alone never
    accuses a node."""

    app_backoff: timedelta = timedelta(seconds=10)
    """Pause before the second restart in a row for failures of the application; doubles with
    each further one. The first restart waits for nothing. As the kubelet's CrashLoopBackOff."""

    app_backoff_max: timedelta = timedelta(minutes=5)
    """The longest such pause; the kubelet's CrashLoopBackOff ends at 5 minutes, too."""

    app_backoff_reset: timedelta = timedelta(minutes=10)
    """An attempt that ran for so long ends the row: the next failure is the first one again. The
    kubelet's figure."""

    suspect_failures: int = 3
    """Failures of applications that began on one node, and on no other, after which that node gets
    a deep health check though it reports no fault: what job retries allow by default. 0 for
    never."""

    suspect_window: timedelta = timedelta(hours=24)
    """Within how long so many failures accuse a node. Large jobs fail a few times a day (Llama 3
    405B: every 3 hours)."""

    def __post_init__(self) -> None:
        for key in (
            "wait_for_nodes",
            "launch_timeout",
            "settle",
            "failure_margin",
            "app_backoff",
            "app_backoff_max",
        ):
            if getattr(self, key) < timedelta(0):
                raise ValueError(f"{key} must not be negative, got {getattr(self, key)}")
        if self.app_backoff_reset <= timedelta(0):
            raise ValueError(
                f"app_backoff_reset must be longer than 0s, got {self.app_backoff_reset}"
            )
        if self.suspect_failures < 0 or self.suspect_failures == 1:
            raise ValueError(
                f"suspect_failures must be 0, or 2 or more, got {self.suspect_failures}"
            )
        if self.suspect_window <= timedelta(0):
            raise ValueError(f"suspect_window must be longer than 0s, got {self.suspect_window}")
        _refuse_disorder(self, "app_backoff", "app_backoff_max")


def _refuse_disorder(policy: object, first: str, last: str) -> None:
    """Raise ``ValueError`` if the first pause of a series is longer than its last."""
    shortest, longest = getattr(policy, first), getattr(policy, last)
    if shortest > longest:
        raise ValueError(f"{first} must not be longer than {last}, got {shortest} and {longest}")
