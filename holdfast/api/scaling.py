"""Operations that add nodes to a cluster and delete named nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from holdfast.api.call import Call
from holdfast.api.creation import changed, within_limit
from holdfast.api.problems import ValidationException, refuse
from holdfast.api.sagemaker_model import Json
from holdfast.model.clusters import DesiredCluster, DesiredGroup, Member
from holdfast.model.names import BatchResponse
from holdfast.model.sagemaker import ClusterStatus, InstanceStatus
from holdfast.ports.cluster_records import Change, StoredCluster

_MOST_ADDED: Final = 50
"""Maximum number of nodes added by a call; the model only limits each group."""

_TOKENS_KEPT: Final = timedelta(hours=8)
"""Lifetime of a ``ClientToken``, as in AWS."""


def add_nodes(call: Call) -> Json:
    """See ``BatchAddClusterNodes``."""
    request = call.request
    count = sum(one["IncrementTargetCountBy"] for one in request["NodesToAdd"])
    if count > _MOST_ADDED:
        raise ValidationException(f"NodesToAdd: {count} nodes; one call may add {_MOST_ADDED}")
    answer = changed(
        call,
        "BatchAddClusterNodes",
        lambda stored: _added(call, stored),
        fits=within_limit(call),
        nonce=request.get("ClientToken", ""),
        nonce_since=call.now - _TOKENS_KEPT,
    )
    return {name: answer[name] for name in (BatchResponse.SUCCESSFUL, BatchResponse.FAILED)}


def delete_nodes(call: Call) -> Json:
    """See ``BatchDeleteClusterNodes``."""
    request = call.request
    if not request.get("NodeIds") and not request.get("NodeLogicalIds"):
        raise ValidationException("NodeIds or NodeLogicalIds must be given")
    answer = changed(call, "BatchDeleteClusterNodes", lambda stored: _Deletion(stored).of(request))
    answer.pop("ClusterArn")
    return answer


def _in_service(cluster: DesiredCluster) -> None:
    if cluster.status is not ClusterStatus.IN_SERVICE:
        raise ValidationException(
            f"Cluster {cluster.name} has the status {cluster.status}; wait until it is "
            f"{ClusterStatus.IN_SERVICE}"
        )


def _added(call: Call, stored: StoredCluster) -> Change:
    cluster = stored.cluster
    _in_service(cluster)
    if not cluster.is_continuous:
        raise ValidationException(
            f"Cluster {cluster.name} does not have the NodeProvisioningMode Continuous, which this "
            "needs; use UpdateCluster"
        )
    if cluster.is_autoscaled:
        raise ValidationException(
            f"The groups of cluster {cluster.name} scale themselves (AutoScaling); raise "
            "MinInstanceCount or InstanceCount with UpdateCluster"
        )
    groups = {one.name: one for one in cluster.groups}
    members = list(stored.members)
    answer: dict[str, list[Json]] = {BatchResponse.SUCCESSFUL: [], BatchResponse.FAILED: []}
    for addition in call.request["NodesToAdd"]:
        group = groups.get(addition["InstanceGroupName"])
        why = _why_not_added(group, addition)
        if group is None or why is not None:
            answer[BatchResponse.FAILED].append(why or {})
            continue
        count = addition["IncrementTargetCountBy"]
        groups[group.name] = replace(group, target=group.target + count)
        places = [_place(call, group.name, members) for _ in range(count)]
        answer[BatchResponse.SUCCESSFUL] += [
            {
                "NodeLogicalId": one.logical_id,
                "InstanceGroupName": group.name,
                "Status": InstanceStatus.PENDING,
            }
            for one in places
        ]
    after = replace(cluster, groups=tuple(groups.values()))
    refuse(call.require_creation().rejections(after))
    return Change(cluster=after, members=tuple(members), answer=answer)


def _why_not_added(group: DesiredGroup | None, addition: Json) -> Json | None:
    name = addition["InstanceGroupName"]
    if group is None:
        code, why = "InstanceGroupNotFound", f"Instance group {name} not found"
    elif group.is_going:
        code, why = "InvalidInstanceGroupStatus", f"The instance group {name} is being deleted"
    elif addition.get("InstanceTypes", [group.made_of.instance_type]) != [
        group.made_of.instance_type
    ]:
        code, why = "IncompatibleInstanceTypes", f"{name} has {group.made_of.instance_type}"
    else:
        return None
    return {
        "InstanceGroupName": name,
        "ErrorCode": code,
        "FailedCount": addition["IncrementTargetCountBy"],
        "Message": why,
    }


def _place(call: Call, group: str, members: list[Member]) -> Member:
    """Slot for a node, whose name is known before its machine exists."""
    known = {one.logical_id for one in members}
    stamp = f"{call.now:%Y%m%dt%H%M%S%f}"
    name = next(
        name for n in range(len(known) + 1) if (name := f"{group}-{stamp}-{n}") not in known
    )
    place = Member(logical_id=name, group=group, added_at=call.now, status_since=call.now)
    members.append(place)
    return place


class _Deletion:
    """Deletes nodes from a cluster, one after the other."""

    def __init__(self, stored: StoredCluster) -> None:
        _in_service(stored.cluster)
        self._cluster = stored.cluster
        self._members = {one.logical_id: one for one in stored.members}
        self._ids = {
            one.machine.id: one.logical_id for one in stored.members if one.machine is not None
        }
        self._groups = {one.name: one for one in stored.cluster.groups}

    def of(self, request: Mapping[str, Any]) -> Change:
        """Delete all nodes that a request names and that can be deleted."""
        ids = list(dict.fromkeys(request.get("NodeIds", ())))
        names = list(dict.fromkeys(request.get("NodeLogicalIds", ())))
        done, failed = self._each({one: self._ids.get(one) for one in ids})
        named, unnamed = self._each({one: one for one in names})
        answer = {
            BatchResponse.SUCCESSFUL: done or None,
            BatchResponse.FAILED: [{"NodeId": one, **why} for one, why in failed] or None,
            "SuccessfulNodeLogicalIds": named or None,
            "FailedNodeLogicalIds": [{"NodeLogicalId": one, **why} for one, why in unnamed] or None,
        }
        return Change(
            cluster=replace(self._cluster, groups=tuple(self._groups.values())),
            members=tuple(self._members.values()),
            answer=answer,
        )

    def _each(
        self, names: Mapping[str, str | None]
    ) -> tuple[Sequence[str], Sequence[tuple[str, Json]]]:
        done, failed = [], []
        for given, name in names.items():
            why = self._take(given, self._members.get(name or ""))
            if why is None:
                done.append(given)
            else:
                failed.append((given, why))
        return done, failed

    def _take(self, given: str, member: Member | None) -> Json | None:
        """Delete a node; returns why that is not possible, or nothing."""
        if member is None:
            return _why("NodeIdNotFound", f"{given} is not in the cluster")
        group = self._groups.get(member.group)
        machine = member.machine
        if group is None or group.is_going or member.status is InstanceStatus.SHUTTING_DOWN:
            return _why("InvalidNodeStatus", f"{given} is already being deleted")
        if machine is not None and machine.id in group.leaving:
            return None
        if group.target - 1 < group.minimum:
            text = f"{group.name} must keep {group.minimum} nodes (MinInstanceCount)"
            return _why("NodeIdInUse", text)
        config: Any = group.made_of.spec.get("SlurmConfig", {})
        if config.get("NodeType") == "Controller":
            return _why("NodeIdInUse", f"{given} is a controller node")
        leaving = group.leaving
        if machine is None:
            del self._members[member.logical_id]
        else:
            leaving = (*leaving, machine.id)
        self._groups[group.name] = replace(group, target=group.target - 1, leaving=leaving)
        return None


def _why(code: str, message: str) -> Json:
    return {"Code": code, "Message": message}
