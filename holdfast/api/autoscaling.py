"""``AutoScaling``: instance groups that scale themselves."""

from collections.abc import Iterator
from dataclasses import replace

from holdfast.api.sagemaker_model import Json
from holdfast.model.clusters import AutoScaling, DesiredCluster, DesiredGroup
from holdfast.model.sagemaker import AutoScalingStatus, ClusterStatus

_KEY = "AutoScaling"
_ENABLED = "Enable"


def requested_autoscaling(request: Json, before: AutoScaling | None = None) -> AutoScaling | None:
    """Setting after a valid request; that of ``before`` if the request has none."""
    config = request.get(_KEY)
    if config is None:
        return before
    failure = before.failure if before is not None else ""
    is_enabled = config["Mode"] == _ENABLED
    return AutoScaling(is_enabled=is_enabled, failure=failure if is_enabled else "")


def autoscaling_rejections(cluster: DesiredCluster) -> Iterator[str]:
    """Why the groups of a requested cluster cannot scale themselves."""
    if cluster.is_autoscaled and not cluster.is_continuous:
        yield (
            f"{_KEY}: Mode Enable requires NodeProvisioningMode Continuous, with which a cluster is"
            " in service while nodes are added; set it"
        )


def sized(group: DesiredGroup, *, is_autoscaled: bool) -> DesiredGroup:
    """Group of a request, whose target is its ``InstanceCount``, with the size to begin with."""
    if not is_autoscaled:
        return group
    return replace(group, target=group.minimum, most=group.target)


def resized(before: DesiredGroup, after: DesiredGroup) -> DesiredGroup:
    """``after`` with the present size of ``before``, within the new bounds."""
    if after.most is None:
        return after
    return replace(after, target=max(after.minimum, min(before.target, after.most)))


def switched(group: DesiredGroup, *, is_autoscaled: bool) -> DesiredGroup:
    """Group that an update does not name: the nodes that it has are its limit, or its size."""
    if is_autoscaled == (group.most is not None):
        return group
    return replace(group, most=group.target if is_autoscaled else None)


def described_autoscaling(cluster: DesiredCluster) -> Json | None:
    """``AutoScaling`` of ``DescribeCluster``; None if no request has set it."""
    settings = cluster.autoscaling
    if settings is None:
        return None
    if not settings.is_enabled:
        return {"Mode": "Disable", "Status": AutoScalingStatus.IN_SERVICE}
    status = AutoScalingStatus.IN_SERVICE
    if cluster.status is ClusterStatus.DELETING:
        status = AutoScalingStatus.DELETING
    elif cluster.status is ClusterStatus.CREATING:
        status = AutoScalingStatus.CREATING
    elif settings.failure:
        status = AutoScalingStatus.FAILED
    return {
        "Mode": _ENABLED,
        "AutoScalerType": "Karpenter",
        "Status": status,
        "FailureMessage": settings.failure or None,
    }
