"""Timeouts for bringing clusters to their desired state."""

from dataclasses import dataclass
from datetime import timedelta

from holdfast.kit.ranges import require_longer_than_zero


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPolicy:
    """Timeouts for creating and changing clusters."""

    retry_failed: timedelta = timedelta(minutes=10)
    """Time for which a failed machine is kept for inspection before it is replaced. HyperPod, too,
    retries about every 10 minutes."""

    provision_timeout: timedelta = timedelta(hours=3)
    """Time for which nodes may be missing before a change is rolled back. HyperPod uses the same
    figure for the minimum number of nodes of a group."""

    batch_timeout: timedelta = timedelta(hours=3)
    """Time for all nodes of a batch of a software update to run; after it, the update is rolled
    back. The same as ``provision_timeout``."""

    start_window: timedelta = timedelta(hours=1)
    """Time for which a scheduled software update may start late: because the server was down, or
    because the cluster was changing. After it, the run is skipped, since an update stops jobs, and
    people expect it at its time."""

    patch_notice: timedelta = timedelta(days=1)
    """Time between the discovery of a newer image and its installation by ``AutoPatchConfig``, in
    which people can choose another time. Our choice: SageMaker does not publish its own."""

    scale_down_after: timedelta = timedelta(minutes=10)
    """Time for which a node must be idle before ``AutoScaling`` removes it: as long as the default
    of Kubernetes' Cluster Autoscaler (``scale-down-unneeded-time``)."""

    join_timeout: timedelta = timedelta(minutes=15)
    """Time after launch in which a machine is expected to join the cluster; later, ``AutoScaling``
    does not count on it. The same as the Cluster Autoscaler's ``max-node-provision-time``."""

    def __post_init__(self) -> None:
        require_longer_than_zero(
            self,
            "retry_failed",
            "provision_timeout",
            "batch_timeout",
            "start_window",
            "patch_notice",
            "scale_down_after",
            "join_timeout",
        )
