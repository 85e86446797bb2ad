"""Operation that updates the software of nodes."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from math import ceil

from holdfast.api.call import Call
from holdfast.api.creation import changed, steady
from holdfast.api.problems import ResourceNotFound, ValidationException
from holdfast.api.sagemaker_model import Json
from holdfast.decisions.cluster_members import ClusterEventCollector
from holdfast.model.clusters import DesiredGroup, GroupStage, SoftwareUpdate
from holdfast.model.sagemaker import ClusterStatus, UpdateStatus
from holdfast.ports.cluster_records import Change, StoredCluster


def update_software(call: Call) -> Json:
    """See ``UpdateClusterSoftware``.

    Each machine is replaced by one that boots the requested image and runs the lifecycle scripts.
    Without a rolling policy all machines of a group are replaced at once.
    """
    deployment = call.request.get("DeploymentConfig", {})
    if deployment.get("AutoRollbackConfiguration") and not call.require_creation().has_alarms:
        raise ValidationException(
            "DeploymentConfig.AutoRollbackConfiguration: alarms are not supported; set "
            'alarms = "cloudwatch" in the configuration of the server, or omit the member'
        )
    return changed(call, "UpdateClusterSoftware", lambda stored: _begun(call, stored))


def _begun(call: Call, stored: StoredCluster) -> Change:
    cluster, request = stored.cluster, call.request
    steady(cluster)
    requested = request.get("InstanceGroups", ())
    names = {one["InstanceGroupName"] for one in requested} or {one.name for one in cluster.groups}
    if unknown_members := names - {one.name for one in cluster.groups}:
        raise ResourceNotFound(f"Instance group {min(unknown_members)} not found")
    collector = ClusterEventCollector(cluster, call.now)
    groups = []
    for one in cluster.groups:
        if one.name in names:
            collector.group(one.name, "UpdateClusterSoftware initiated for IG {g} in Cluster {c}.")
            groups.append(_updating(call, one))
        else:
            groups.append(one)
    after = replace(
        cluster,
        status=ClusterStatus.SYSTEM_UPDATING,
        since=call.now,
        failure="",
        groups=tuple(groups),
    )
    return Change(
        cluster=after, members=stored.members, cluster_events=tuple(collector.reported), answer={}
    )


def _updating(call: Call, group: DesiredGroup) -> DesiredGroup:
    deployment = call.request.get("DeploymentConfig", {})
    rolling = deployment.get("RollingUpdatePolicy", {})
    batch = _size(rolling.get("MaximumBatchSize"), group.target)
    alarms: Sequence[Json] = deployment.get("AutoRollbackConfiguration", ())
    return replace(
        group,
        made_of=replace(
            group.made_of,
            image=call.request.get("ImageId", group.made_of.image),
            revision=group.made_of.revision + 1,
        ),
        stage=GroupStage.NEW,
        update=SoftwareUpdate(
            status=UpdateStatus.PENDING,
            began_at=call.now,
            before=group.made_of,
            batch=batch,
            rollback_batch=_size(rolling.get("RollbackMaximumBatchSize"), group.target, batch),
            bake=timedelta(seconds=deployment.get("WaitIntervalInSeconds", 0)),
            alarms=tuple(one["AlarmName"] for one in alarms),
        ),
    )


def _size(given: Json | None, whole: int, otherwise: int | None = None) -> int:
    """Number of nodes of a batch: at least one, a percentage is rounded up."""
    if given is None:
        return max(1, whole if otherwise is None else otherwise)
    value: int = given["Value"]
    if given["Type"] == "INSTANCE_COUNT":
        return value
    if value > 100:
        raise ValidationException(f"DeploymentConfig: a batch of {value} % exceeds 100 %")
    return max(1, ceil(whole * value / 100))
