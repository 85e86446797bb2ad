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
    """Silence of the agent after which a node counts as lost. Kubernetes' node controller waits
    40 s by default (50 s since 1.32)."""

    silent_remedy: Remedy = Remedy.REPLACE
    """For a node that went silent or dark. A machine that does not answer may be in any state;
    only another machine is sure to help."""

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

    provider_retry: timedelta = timedelta(seconds=30)
    """Pause after a provider refused an order for the first time, unless it asks for another.
    Pauses double while it refuses."""

    provider_retry_max: timedelta = timedelta(minutes=10)
    """The longest pause that Holdfast makes by itself. HyperPod, too, tries every 10 minutes where
    there is no capacity."""

    deep_check_on_start: bool = False
    """Whether nodes pass a deep health check when they join and after a repair."""

    deep_check_timeout: timedelta = timedelta(hours=3)
    """HyperPod's deep health checks take about 2 hours. A node that never reports back failed."""

    def __post_init__(self) -> None:
        for key in (
            "heartbeat_timeout",
            "join_timeout",
            "reboot_timeout",
            "replace_timeout",
            "provider_retry",
            "provider_retry_max",
            "deep_check_timeout",
            "breaker_window",
            "offender_window",
        ):
            if getattr(self, key) <= timedelta(0):
                raise ValueError(f"{key} must be longer than 0s, got {getattr(self, key)}")
        for key in ("drain_timeout", "reboot_window"):
            if getattr(self, key) < timedelta(0):
                raise ValueError(f"{key} must not be negative, got {getattr(self, key)}")
        if not 0 < self.breaker_share <= 100:
            raise ValueError(
                f"breaker_share must be above 0 and at most 100, got {self.breaker_share}"
            )
        for key in ("offender_faults", "breaker_min_nodes"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be 1 or more, got {getattr(self, key)}")
        if self.silent_remedy not in (Remedy.REBOOT, Remedy.REPLACE):
            raise ValueError(f"silent_remedy must be reboot or replace, got {self.silent_remedy}")


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

    app_backoff: timedelta = timedelta(seconds=1)
    """Pause before the second restart in a row for failures of the application; doubles with
    each further one. The first restart waits for nothing."""

    app_backoff_max: timedelta = timedelta(minutes=5)
    """The longest such pause; the kubelet's CrashLoopBackOff ends at 5 minutes, too."""

    def __post_init__(self) -> None:
        for key in ("wait_for_nodes", "launch_timeout", "settle", "app_backoff", "app_backoff_max"):
            if getattr(self, key) < timedelta(0):
                raise ValueError(f"{key} must not be negative, got {getattr(self, key)}")
