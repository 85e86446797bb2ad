"""Settings of the decision core: effect, unit, and the source of each default."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from holdfast.kit.quota import Quota
from holdfast.kit.ranges import require_longer_than_zero, require_not_negative
from holdfast.kit.units import format_duration
from holdfast.model.health import Remedy


class RecoveryMode(StrEnum):
    """Whether faulty nodes are repaired automatically; HyperPod's ``NodeRecovery``."""

    AUTOMATIC = "Automatic"
    NONE = "None"
    """Mark faulty nodes but do not repair them; repairs that a person requests are still carried
    out."""


class SilentAgentAction(StrEnum):
    """Action on a node whose agent is silent while the scheduler's daemon on it still answers."""

    WARN = "warn"
    """Set the condition and report an event; the node stays in service."""

    CORDON = "cordon"
    """Also cordon the node until its agent reports again; running jobs continue."""

    DEEP_CHECK = "deep-check"
    """Do the same as ``cordon``, and run a deep health check once no job runs on the node."""


class StragglerAction(StrEnum):
    """Action on the node of a rank that the others of its job wait for."""

    NONE = "none"
    """Report the rank; nothing else follows."""

    PAIR_TEST = "pair-test"
    """Also run a deep health check with tests between nodes, once the jobs of the node end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationPolicy:
    """Settings for fault detection and repair of nodes."""

    node_recovery: RecoveryMode = RecoveryMode.AUTOMATIC
    """Whether faulty nodes are repaired automatically. With ``None`` they are only marked, and a
    person requests each repair. ``Automatic`` is HyperPod's default and its recommendation."""

    max_unavailable: Quota = Quota(percent=20.0)
    """Maximum number of nodes out of service for repair at once: a count, or a percentage of the
    cluster, rounded up. Further repairs are deferred until a node is back. Raise it to repair
    faster, lower it to keep more nodes for jobs. The default of 20 % is the share at which
    Karpenter and EKS node repair stop, too."""

    replacements_per_hour: Quota | None = None
    """Maximum number of automatic replacements in an hour: a count, or a percentage of the cluster.
    A person approves each further one by requesting it (``holdfast nodes replace``). If left out,
    far more than hardware fails: the number expected from 6.5 failures per 1,000 node-days (Meta's
    RSC-1; Llama 3 had 3.8), 6 standard deviations and 10; for 2,048 nodes 16."""

    replacements_per_day: Quota | None = None
    """Maximum number of automatic replacements in 24 hours, as ``replacements_per_hour``. If left
    out, 46 for 2,048 nodes, of which 13 are expected. Lower it where a replacement costs much."""

    drain_timeout: timedelta = timedelta(minutes=15)
    """Time for jobs to leave a node that is being drained. When it has elapsed, the repair starts
    even if jobs still run. On a lost node, ``heartbeat_timeout`` applies instead if that is
    shorter. Raise it if jobs need longer to save a checkpoint."""

    heartbeat_timeout: timedelta = timedelta(seconds=40)
    """Time without a heartbeat after which a node counts as lost. Both the agent and, where there
    is one, the scheduler's daemon (kubelet, slurmd) must be silent for that long. While the daemon
    answers, only the agent counts as silent; see ``silent_agent_action``. Kubernetes' node
    controller waits 40 s by default (50 s since 1.32)."""

    silent_remedy: Remedy = Remedy.REPLACE
    """Remedy for a lost or powered-off node: ``reboot`` or ``replace``. The default is ``replace``:
    a machine that does not answer may be in any state, and only another machine is sure to help."""

    silent_agent_action: SilentAgentAction = SilentAgentAction.CORDON
    """Action on a node of which only the agent has been silent for ``heartbeat_timeout``: ``warn``,
    ``cordon`` or ``deep-check``. Running jobs continue in every case. At most ``max_unavailable``
    nodes in service are cordoned for it: when more agents are silent at once, the installation of
    the agents is the likelier cause, and the other nodes only get the condition and the event."""

    join_timeout: timedelta = timedelta(minutes=20)
    """Time from the phase ``joining`` to the first heartbeat of the agent. A node that takes longer
    counts as faulty. Raise it for machines that boot slowly: instances with many accelerators take
    10 to 15 minutes."""

    reboot_timeout: timedelta = timedelta(minutes=10)
    """Time from a reboot order to the first heartbeat of the agent after the reboot. When it has
    elapsed, the machine is replaced. A reboot that the provider refuses for that long, for example
    because it cannot reboot machines at all, becomes a replacement, too. HyperPod's reboots take 1
    to 3 minutes."""

    reboot_window: timedelta = timedelta(hours=1)
    """Time after a reboot in which another fault shows that the reboot did not help: the machine is
    then replaced instead of rebooted again."""

    replace_timeout: timedelta = timedelta(hours=1)
    """Time from a replacement order to the appearance of the new machine. When it has elapsed, the
    delay is reported and the replacement is ordered again. The timeout doubles with each new order,
    up to eight times its length. Raise it if your provider takes longer; HyperPod's replacements
    take 20 to 30 minutes."""

    offender_faults: int = 3
    """Number of faults within ``offender_window`` that makes a machine a repeat offender. A repeat
    offender is replaced and not taken back."""

    offender_window: timedelta = timedelta(days=7)
    """Time over which the faults of a machine are counted for ``offender_faults``. NVSentinel
    counts remediations over 7 days, too."""

    breaker_share: float = 50.0
    """Percentage of nodes that opens the circuit breaker. If more of the cluster's nodes turn
    faulty within ``breaker_window``, all repairs are paused: a faulty detector is then the likelier
    cause. The default is NVSentinel's."""

    breaker_window: timedelta = timedelta(minutes=5)
    """Time over which newly faulty nodes are counted for ``breaker_share`` and
    ``breaker_min_nodes``. A longer window also opens the circuit breaker for faults that spread
    slowly. The default is NVSentinel's."""

    breaker_min_nodes: int = 5
    """Minimum number of newly faulty nodes that can open the circuit breaker; fewer never do,
    whatever their share. This keeps repairs running on very small clusters, where half of the nodes
    can fail by chance."""

    breaker_close_after: timedelta = timedelta(minutes=30)
    """Time for which all nodes must be schedulable and without a fault before an open circuit
    breaker closes automatically. With 0s it never does, and a person has to reset it. The default
    is six times ``breaker_window``; if the faults return, they open the breaker again."""

    provider_retry: timedelta = timedelta(seconds=30)
    """Delay before an order is sent again that the provider refused for the first time, unless the
    provider asks for another delay. It doubles with each further refusal, up to
    ``provider_retry_max``. Raise it if the provider limits the rate of requests."""

    provider_retry_max: timedelta = timedelta(minutes=10)
    """Maximum delay between two tries of an order, unless the provider asks for a longer one.
    HyperPod, too, retries every 10 minutes where there is no capacity."""

    deep_check_on_start: bool = False
    """Whether nodes must pass a deep health check when they join the cluster and after a repair,
    before jobs run on them."""

    deep_check_groups: tuple[str, ...] = ()
    """Instance groups to which ``deep_check_on_start`` and ``deep_check_every`` apply; all nodes if
    left out. HyperPod sets ``OnStartDeepHealthChecks`` by instance group, too."""

    deep_check_timeout: timedelta = timedelta(hours=3)
    """Time limit of a deep health check. A node that has not reported a result by then has failed.
    HyperPod's deep health checks take about 2 hours."""

    deep_check_pairs: bool = False
    """Whether a deep health check includes tests between nodes. They run after the node has passed
    alone, with others of its group that are under a check, or with one that has no job. A check for
    which ``InstanceConnectivity`` was requested always includes them."""

    pair_timeout: timedelta = timedelta(minutes=15)
    """Time limit of one test between two nodes. A test that does not end in time has failed,
    because collectives do not end over a bad link. HyperPod's NCCL test takes 5 to 15 minutes."""

    deep_check_every: timedelta | None = None
    """Interval between deep health checks of a node, counted from the end of the last one. The
    check runs once no job runs on the node. Left out, there are no periodic checks. Soperator
    checks idle nodes twice a day."""

    max_checking: Quota = Quota(percent=100.0)
    """Maximum number of nodes under a deep health check at once: a count, or a percentage of the
    cluster, rounded up. Lower it to keep nodes available for jobs. Checks that are due by
    ``deep_check_every`` run on one node at a time. HyperPod checks all nodes of a new cluster at
    once."""

    incident_retention: timedelta = timedelta(days=90)
    """Time for which an incident is kept after its end. Open incidents never expire."""

    incidents_kept: int = 2000
    """Maximum number of ended incidents that are kept; beyond it, the oldest are deleted. On
    Kubernetes, each is an object of about 1 KiB in etcd."""

    def __post_init__(self) -> None:
        require_longer_than_zero(
            self,
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
            "deep_check_every",
        )
        require_not_negative(self, "drain_timeout", "reboot_window", "breaker_close_after")
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
    """Settings for restarts of jobs. ``JobSpec`` holds what a single job can set for itself."""

    wait_for_nodes: timedelta = timedelta(hours=2)
    """Time for which a job waits for enough schedulable nodes before it fails. The default is
    longer than ``replace_timeout``, so that a replacement can be ordered twice. Raise it if your
    provider is often out of capacity."""

    launch_timeout: timedelta = timedelta(minutes=10)
    """Time for which the launch of an attempt is retried before the attempt counts as failed."""

    settle: timedelta = timedelta(milliseconds=200)
    """Delay between the end of an attempt and the decision on its cause. It leaves time for a
    kernel log line that explains the crash and arrives a little later."""

    report_timeout: timedelta = timedelta(seconds=15)
    """Maximum time after the end of an attempt to wait for a report or heartbeat of each of its
    nodes before the application is held responsible. Only on Slurm, where reports may take that
    long; the default is the interval of heartbeats there, and 5 seconds. A fault that is reported
    meanwhile is decided on at once."""

    fault_grace: timedelta = timedelta(seconds=5)
    """Time between SIGTERM and SIGKILL when a hardware fault stops an attempt on Kubernetes, if it
    is shorter than the pods' own grace period. A rank that is the first process of its container
    and has no handler ignores SIGTERM. The default is that of ``holdfast run --grace``. A job that
    saves a checkpoint on SIGTERM sets its own time in the annotation
    ``holdfast.dev/fault-grace``."""

    failure_margin: timedelta = timedelta(seconds=2)
    """Time for which the other ranks keep running after a rank has failed, in a job that has failed
    before. If they fail by themselves in that time, the node of the first rank is not to blame.
    Interpreters that all fail at once end within a second. With 0s, the failures of one job alone
    never make a node suspect."""

    app_backoff: timedelta = timedelta(seconds=10)
    """Delay before the second restart in a row after application failures. The first restart is
    immediate, and the delay doubles with each further one, as in the kubelet's CrashLoopBackOff."""

    app_backoff_max: timedelta = timedelta(minutes=5)
    """Maximum delay of ``app_backoff``. The kubelet's CrashLoopBackOff ends at 5 minutes, too."""

    app_backoff_reset: timedelta = timedelta(minutes=10)
    """Running time of an attempt that resets ``app_backoff``: the next failure counts as the first
    one again. The default is the kubelet's."""

    stop_on_permanent_cause: bool = True
    """Whether a job fails at once if a restart would fail in the same way: a module that cannot be
    imported, a syntax error, rejected arguments or a missing file before the first step, a full
    disk, or CUDA out of memory at the same step twice in a row. Each of these restarts would take
    minutes on all nodes of the job. In a job of several nodes, the ranks of more than one node must
    fail by themselves within ``failure_margin``, or a full disk must end the ranks of one node in
    two attempts in a row. Turn it off if something else repairs the cause between two attempts,
    such as a job that deletes old checkpoints."""

    suspect_failures: int = 3
    """Number of application failures within ``suspect_window`` that began on one node and on no
    other, after which that node gets a deep health check although it reports no fault. 0 turns this
    off. The default is what ``max_app_retries`` of a job is by default."""

    suspect_window: timedelta = timedelta(hours=24)
    """Time over which application failures are counted for ``suspect_failures``. Large jobs fail a
    few times a day (Llama 3 405B: every 3 hours)."""

    straggler_action: StragglerAction = StragglerAction.NONE
    """Action on the node of a straggler: ``none`` reports the rank, ``pair-test`` also cordons the
    node and runs a deep health check with tests between nodes once its jobs end, so that the next
    attempt starts without it. No running job is interrupted. A line in the log of the job may name
    the node: it can only be one of that attempt, at most two of a job in 24 hours, and each node
    once in 24 hours. The default is ``none``, because a check takes the node from jobs for up to 2
    hours, and a slow rank may be slow by its data."""

    def __post_init__(self) -> None:
        require_not_negative(
            self,
            "wait_for_nodes",
            "launch_timeout",
            "settle",
            "report_timeout",
            "fault_grace",
            "failure_margin",
            "app_backoff",
            "app_backoff_max",
        )
        require_longer_than_zero(self, "app_backoff_reset", "suspect_window")
        if self.suspect_failures < 0 or self.suspect_failures == 1:
            raise ValueError(
                f"suspect_failures must be 0, or 2 or more, got {self.suspect_failures}"
            )
        _refuse_disorder(self, "app_backoff", "app_backoff_max")


def _refuse_disorder(policy: object, first: str, last: str) -> None:
    """Raise ``ValueError`` if the first delay of a series is longer than the last."""
    shortest, longest = getattr(policy, first), getattr(policy, last)
    if shortest > longest:
        shown = f"{format_duration(shortest)} and {format_duration(longest)}"
        raise ValueError(f"{first} must not be longer than {last}, got {shown}")
