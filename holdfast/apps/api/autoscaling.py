"""Instance groups that scale themselves or are patched: where they are supported."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from importlib import import_module
from typing import Final

from holdfast.api.clusters import instance_id
from holdfast.apps.target import TargetPlatform, Where
from holdfast.model.clusters import DesiredCluster
from holdfast.ports.pod_demand import PodScheduling

_CONNECTION: Final = "holdfast.apps.kubernetes.waiting_pods"

Rejections = Callable[[DesiredCluster], Sequence[str]]

_REASONS: Final = {
    TargetPlatform.LOCAL: "a job that needs more nodes than are free is rejected here, so that no "
    "job waits for nodes",
    TargetPlatform.SLURM: "it follows pods of Kubernetes; on Slurm, set ResumeProgram and "
    "SuspendProgram in slurm.conf, with which slurmctld starts and stops nodes itself",
}


def waiting_pods(where: Where, opened: ExitStack, *, has_ec2: bool) -> PodScheduling | None:
    """Pods that wait for nodes; None where groups cannot scale themselves.

    Raises:
        ConfigError: the cluster cannot be found.

    """
    if where.place is not TargetPlatform.KUBERNETES or not has_ec2:
        return None
    connect = import_module(_CONNECTION).connect_pods
    found: PodScheduling = opened.enter_context(
        closing(connect(where.kubeconfig, where.context, instance_id))
    )
    return found


def with_autoscaling(where: Where, rejections: Rejections, *, has_ec2: bool) -> Rejections:
    """Add to the rejections of a cluster that its groups cannot scale themselves or be patched.

    Args:
        where: platform of the nodes.
        rejections: other rejections.
        has_ec2: whether the server creates machines on EC2.

    """

    def all_rejections(cluster: DesiredCluster) -> Sequence[str]:
        return [*rejections(cluster), *_rejections(where, cluster, has_ec2=has_ec2)]

    return all_rejections


def _rejections(where: Where, cluster: DesiredCluster, *, has_ec2: bool) -> Iterator[str]:
    if where.place is not TargetPlatform.KUBERNETES or not has_ec2:
        for group in cluster.groups:
            if group.patching is not None and not group.is_going:
                yield (
                    f"InstanceGroups: {group.name}: AutoPatchConfig: it follows images of EC2 on "
                    f"nodes of Kubernetes; --platform of the server is {where.place}, "
                    f"{'with' if has_ec2 else 'without'} [ec2]; set ScheduledUpdateConfig"
                )
    if not cluster.is_autoscaled:
        return
    reason = _REASONS.get(where.place)
    if reason is None and not has_ec2:
        reason = "the API does not create nodes here; set [ec2] in its configuration"
    if reason is not None:
        yield (
            f"AutoScaling: --platform of the server is {where.place}, and {reason}; set Mode to "
            "Disable"
        )
