"""Operation that updates the software of nodes."""

from dataclasses import replace

from holdfast.api.call import Call
from holdfast.api.creation import changed, steady
from holdfast.api.deployments import alarm_rejections, deployment_rejections, requested_deployment
from holdfast.api.problems import ResourceNotFound, refuse
from holdfast.api.sagemaker_model import Json
from holdfast.decisions.cluster_members import ClusterEventCollector
from holdfast.decisions.software_update import started
from holdfast.model.sagemaker import ClusterStatus
from holdfast.ports.cluster_records import Change, StoredCluster


def update_software(call: Call) -> Json:
    """See ``UpdateClusterSoftware``.

    Each machine is replaced by one that boots the requested image and runs the lifecycle scripts.
    Without a rolling policy all machines of a group are replaced at once.
    """
    config = call.request.get("DeploymentConfig", {})
    has_alarms = call.require_creation().has_alarms
    refuse([*deployment_rejections(config), *alarm_rejections(config, has_alarms=has_alarms)])
    return changed(call, "UpdateClusterSoftware", lambda stored: _begun(call, stored))


def _begun(call: Call, stored: StoredCluster) -> Change:
    cluster, request = stored.cluster, call.request
    steady(cluster)
    requested = request.get("InstanceGroups", ())
    names = {one["InstanceGroupName"] for one in requested} or {one.name for one in cluster.groups}
    if unknown_members := names - {one.name for one in cluster.groups}:
        raise ResourceNotFound(f"Instance group {min(unknown_members)} not found")
    deployment = requested_deployment(request.get("DeploymentConfig", {}))
    collector = ClusterEventCollector(cluster, call.now)
    groups = []
    for one in cluster.groups:
        if one.name in names:
            collector.group(one.name, "UpdateClusterSoftware initiated for IG {g} in Cluster {c}.")
            image = request.get("ImageId", "")
            groups.append(started(one, stored.members, deployment, call.now, image=image))
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
