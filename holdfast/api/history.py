"""Operations that show what happened: each step of each incident is an event."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.api.call import Call
from holdfast.api.clusters import Cluster, instance_id
from holdfast.api.paging import page
from holdfast.api.problems import ResourceNotFound
from holdfast.api.sagemaker_model import Json
from holdfast.model.cluster_words import EventLevel, ResourceType
from holdfast.model.incidents import Incident

_SPACE: Final = uuid.UUID("9a4f6d52-8f0e-4c2b-9d0e-6d1b8d2f5c11")
"""The namespace of the ids of events: the same step of an incident has the same id always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that happened in an incident."""

    id: str
    at: datetime
    node: str
    group: str
    instance_id: str
    level: EventLevel
    description: str
    resource: ResourceType = ResourceType.INSTANCE


def list_cluster_events(call: Call) -> Json:
    """See ``ListClusterEvents``."""
    request = call.request
    cluster = call.cluster()
    found = [one for one in _steps(cluster) if _is_wanted(one, request)]
    shown, token = page(
        found,
        request,
        key=lambda one: (one.at, one.id),
        descending=request.get("SortOrder", "Descending") == "Descending",
    )
    return {"Events": [_event(call, cluster, one) for one in shown], "NextToken": token}


def describe_cluster_event(call: Call) -> Json:
    """See ``DescribeClusterEvent``."""
    cluster = call.cluster()
    wanted = call.request["EventId"]
    for one in _steps(cluster):
        if one.id == wanted:
            details = {"EventDetails": {"EventMetadata": _metadata(one)}}
            return {"EventDetails": {**_event(call, cluster, one), **details}}
    raise ResourceNotFound(f"Event with id {wanted} not found")


def _metadata(step: Step) -> Json:
    metadata: Json = {
        "FailureMessage": step.description if step.level is EventLevel.ERROR else None
    }
    if step.resource is ResourceType.INSTANCE:
        metadata["NodeLogicalId"] = step.node or None
    return {step.resource: metadata}


def _steps(cluster: Cluster) -> Iterator[Step]:
    for one in cluster.happenings():
        yield Step(
            id=one.id,
            at=one.at,
            node=one.logical_id,
            group=one.group,
            instance_id=one.instance_id,
            level=one.level,
            description=one.description,
            resource=one.resource,
        )
    groups = {one.name: one.group for one in cluster.nodes()}
    for incident in cluster.incidents():
        for what, at, level, description in _course(incident):
            yield Step(
                id=str(uuid.uuid5(_SPACE, f"{incident.id}/{what}")),
                at=at,
                node=incident.node,
                group=groups.get(incident.successor or incident.node, ""),
                instance_id=instance_id(incident.provider_id),
                level=level,
                description=description,
            )


def _course(incident: Incident) -> Iterator[tuple[str, datetime, EventLevel, str]]:
    node, remedy = incident.node, incident.remedy
    what = f"{incident.reason}: {incident.message}" if incident.message else incident.reason
    yield "detected", incident.detected_at, EventLevel.ERROR, f"{node}: {what}"
    info = EventLevel.INFO
    steps = (
        ("drained", incident.drained_at, info, f"{node} was drained; {remedy} begins"),
        ("repaired", incident.repaired_at, info, f"{node}: {remedy} is done"),
        ("checked", incident.checked_at, info, f"{node} passed its deep health check"),
        ("released", incident.released_at, info, f"{node} takes work again"),
        ("vanished", incident.vanished_at, EventLevel.WARN, f"{node} is gone"),
    )
    for name, at, level, description in steps:
        if at is not None:
            yield name, at, level, description


def _is_wanted(step: Step, request: Json) -> bool:
    after, before = request.get("EventTimeAfter"), request.get("EventTimeBefore")
    return (
        (after is None or step.at > after)
        and (before is None or step.at < before)
        and request.get("InstanceGroupName", step.group) == step.group
        and request.get("NodeId", step.instance_id) in (step.instance_id, step.node)
        and request.get("ResourceType", step.resource) == step.resource
    )


def _event(call: Call, cluster: Cluster, step: Step) -> Json:
    return {
        "EventId": step.id,
        "ClusterArn": call.place.arn(cluster.name),
        "ClusterName": cluster.name,
        "InstanceGroupName": step.group or None,
        "InstanceId": step.instance_id or None,
        "ResourceType": step.resource,
        "EventTime": step.at,
        "EventLevel": step.level,
        "Description": step.description,
    }
