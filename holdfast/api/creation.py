"""Operations that create, change and delete clusters: they only record the desired state."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.api.autoscaling import (
    autoscaling_rejections,
    requested_autoscaling,
    sized,
    switched,
)
from holdfast.api.call import Call
from holdfast.api.deployments import alarm_rejections
from holdfast.api.desired_groups import changed_group, desired_group, node_count, rejections
from holdfast.api.policies import refuse_policies
from holdfast.api.problems import (
    Conflict,
    ResourceInUse,
    ResourceLimitExceeded,
    ResourceNotFound,
    ValidationException,
    refuse,
)
from holdfast.api.sagemaker_model import Json
from holdfast.api.tags import checked_tags
from holdfast.api.tiered_storage import TIERED_STORAGE, mirrors_checkpoints, tier_rejections
from holdfast.decisions.cluster_members import ClusterEventCollector
from holdfast.model.clusters import DesiredCluster, DesiredGroup, GroupStage
from holdfast.model.sagemaker import ClusterStatus
from holdfast.ports.cluster_records import Change, Fits, StoredCluster

_SHARED: Final[tuple[str, ...]] = ("VpcConfig", "Orchestrator", "ClusterRole", TIERED_STORAGE)
"""Cluster-wide settings that are stored and returned unchanged."""

_AUTOMATIC: Final = "Automatic"

_UID_BYTES: Final = 6
"""Number of characters of the last part of an ARN."""


def create_cluster(call: Call) -> Json:
    """See ``CreateCluster``."""
    creation, request = call.require_creation(), call.request
    name = request["ClusterName"]
    refuse([*rejections(request), *_server_rejections(call)])
    tags = checked_tags({}, request.get("Tags", ()))
    shared = {key: request[key] for key in _SHARED if key in request}
    repairs = request.get("NodeRecovery", _AUTOMATIC) == _AUTOMATIC
    uid = secrets.token_hex(_UID_BYTES)
    autoscaling = requested_autoscaling(request)
    is_autoscaled = autoscaling is not None and autoscaling.is_enabled
    cluster = DesiredCluster(
        name=name,
        uid=uid,
        created_at=call.now,
        status=ClusterStatus.CREATING,
        since=call.now,
        repairs=repairs,
        is_continuous="NodeProvisioningMode" in request,
        groups=tuple(
            sized(
                desired_group(name, uid, one, shared, call.now, repairs=repairs),
                is_autoscaled=is_autoscaled,
            )
            for one in request.get("InstanceGroups", ())
        ),
        autoscaling=autoscaling,
        requested=shared,
    )
    refuse([*autoscaling_rejections(cluster), *creation.rejections(cluster)])
    collector = ClusterEventCollector(cluster, call.now)
    collector.cluster("Cluster {c} creation started successfully")
    is_known = any(one.name == name and one.is_listed for one in call.clusters)
    if is_known or not creation.records.create(
        cluster, collector.reported, tags, call.requested("CreateCluster"), fits=within_limit(call)
    ):
        raise ResourceInUse(
            f"Resource Already Exists: Cluster with name {name} already exists. Choose a different "
            "name."
        )
    creation.wake(name)
    return {"ClusterArn": call.place.arn(uid)}


def update_cluster(call: Call) -> Json:
    """See ``UpdateCluster``."""
    refuse([*rejections(call.request), *_server_rejections(call)])
    return changed(
        call, "UpdateCluster", lambda stored: _updated(call, stored), fits=within_limit(call)
    )


def delete_cluster(call: Call) -> Json:
    """See ``DeleteCluster``; idempotent."""
    refuse_policies(call, call.cluster())

    def deleted(stored: StoredCluster) -> Change:
        cluster = stored.cluster
        if cluster.status is ClusterStatus.DELETING:
            return Change(cluster=cluster, members=stored.members, answer={})
        collector = ClusterEventCollector(cluster, call.now)
        collector.cluster("Cluster {c} deletion started successfully")
        going = tuple(_deleting(one) for one in cluster.groups)
        return Change(
            cluster=replace(cluster, status=ClusterStatus.DELETING, since=call.now, groups=going),
            members=stored.members,
            cluster_events=tuple(collector.reported),
            answer={},
        )

    return changed(call, "DeleteCluster", deleted)


def changed(
    call: Call, operation: str, make: Callable[[StoredCluster], Change], **more: Any
) -> Json:
    """Record the change of the cluster that a request names.

    Args:
        call: call of the operation.
        operation: name of the operation.
        make: returns the response and the changed cluster.
        more: passed to ``ClusterRecords.change``.

    Returns:
        Response of ``make`` with the cluster's ARN.

    Raises:
        ResourceNotFound: no such cluster exists.
        ValidationException: it was not created through the API.

    """
    cluster = call.cluster()
    name = cluster.name
    answer = call.require_creation().records.change(name, make, call.requested(operation), **more)
    if answer is None:
        if any(one.name == name and one.desired() is None for one in call.clusters):
            raise ValidationException(
                f"Cluster {name} was not created by this API, which cannot change or delete it"
            )
        raise ResourceNotFound(f"Cluster with name {name} not found")
    call.require_creation().wake(name)
    return {"ClusterArn": call.place.arn(cluster.id), **answer}


def steady(cluster: DesiredCluster, *also: ClusterStatus) -> None:
    """Reject a change while another operation on the cluster is in progress.

    Raises:
        Conflict: another operation is in progress.

    """
    if cluster.status not in (ClusterStatus.IN_SERVICE, *also):
        raise Conflict(
            f"Cluster {cluster.name} has the status {cluster.status}; wait until it is "
            f"{ClusterStatus.IN_SERVICE}"
        )


def within_limit(call: Call) -> Fits:
    """Enforces the limit on the nodes of all clusters; a decrease is always allowed.

    Raises ``ResourceLimitExceeded``.
    """
    limit = call.require_creation().node_limit

    def fits(before: Sequence[DesiredCluster], after: Sequence[DesiredCluster]) -> None:
        count = node_count(after)
        if count > max(limit, node_count(before)):
            raise ResourceLimitExceeded(
                f"All clusters together would have {count} nodes; the limit is {limit}. Delete "
                "some, or raise node_limit in the configuration of the server"
            )

    return fits


def _deleting(group: DesiredGroup) -> DesiredGroup:
    return group if group.is_going else replace(group, stage=GroupStage.LEAVING)


def _updated(call: Call, stored: StoredCluster) -> Change:
    request, cluster = call.request, stored.cluster
    steady(cluster, ClusterStatus.FAILED)
    refuse(list(_group_problems(cluster, request)))
    shared = {**cluster.requested, **{key: request[key] for key in _SHARED if key in request}}
    repairs = cluster.repairs
    if "NodeRecovery" in request:
        repairs = request["NodeRecovery"] == _AUTOMATIC
    after = replace(
        cluster,
        status=ClusterStatus.UPDATING,
        since=call.now,
        failure="",
        repairs=repairs,
        is_continuous=cluster.is_continuous or "NodeProvisioningMode" in request,
        autoscaling=requested_autoscaling(request, cluster.autoscaling),
        requested=shared,
    )
    after = replace(after, groups=_updated_groups(call, after))
    refuse([*autoscaling_rejections(after), *call.require_creation().rejections(after)])
    collector = ClusterEventCollector(after, call.now)
    collector.cluster("Cluster {c} update started successfully")
    return Change(
        cluster=after, members=stored.members, cluster_events=tuple(collector.reported), answer={}
    )


def _updated_groups(call: Call, cluster: DesiredCluster) -> tuple[DesiredGroup, ...]:
    """Groups after an update of a cluster, whose other settings are already those requested."""
    requested = {
        one["InstanceGroupName"]: sized(
            desired_group(
                cluster.name,
                cluster.uid,
                one,
                cluster.requested,
                call.now,
                repairs=cluster.repairs,
            ),
            is_autoscaled=cluster.is_autoscaled,
        )
        for one in call.request.get("InstanceGroups", ())
    }
    goes = set(call.request.get("InstanceGroupsToDelete", ()))
    groups = []
    for one in cluster.groups:
        if one.name in goes:
            groups.append(_deleting(one))
        elif one.name in requested:
            groups.append(changed_group(one, requested.pop(one.name)))
        else:
            kept = switched(one, is_autoscaled=cluster.is_autoscaled)
            mirrors = mirrors_checkpoints(cluster.requested)
            groups.append(_with_settings(kept, repairs=cluster.repairs, mirrors=mirrors))
    return (*groups, *requested.values())


def _server_rejections(call: Call) -> Iterator[str]:
    """Problems of a request that result from the configuration of the server."""
    yield from tier_rejections(call.request, call.require_creation().mirror_problem)
    has_alarms = call.require_creation().has_alarms
    for group in call.request.get("InstanceGroups", ()):
        for key in ("ScheduledUpdateConfig", "AutoPatchConfig"):
            config = group.get(key, {}).get("DeploymentConfig", {})
            for problem in alarm_rejections(config, has_alarms=has_alarms):
                yield f"InstanceGroups: {group['InstanceGroupName']}: {key}.{problem}"


def _with_settings(group: DesiredGroup, *, repairs: bool, mirrors: bool) -> DesiredGroup:
    """Group with the present settings of its cluster; a group that is being deleted needs none."""
    made_of = replace(group.made_of, repairs=repairs, mirrors_checkpoints=mirrors)
    if group.is_going or made_of == group.made_of:
        return group
    return replace(group, made_of=made_of, stage=GroupStage.NEW)


def _group_problems(cluster: DesiredCluster, request: Json) -> Iterator[str]:
    names = {one.name for one in cluster.groups}
    requested = {one["InstanceGroupName"] for one in request.get("InstanceGroups", ())}
    goes = set(request.get("InstanceGroupsToDelete", ()))
    for name in sorted(goes - names):
        yield f"InstanceGroupsToDelete: instance group {name} not found"
    for name in sorted(goes & requested):
        yield f"{name} is both in InstanceGroups and in InstanceGroupsToDelete"
    if names and not (names | requested) - goes:
        yield (
            "InstanceGroupsToDelete: a cluster must keep at least one instance group; to delete "
            "the cluster, use DeleteCluster"
        )
