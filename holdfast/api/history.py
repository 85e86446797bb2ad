"""Operations that list and describe events: one event for each step of each incident."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from holdfast.api.call import Call
from holdfast.api.clusters import Cluster, instance_id
from holdfast.api.paging import page
from holdfast.api.problems import ResourceNotFound
from holdfast.api.sagemaker_model import Json
from holdfast.decisions.planned_work import level_of
from holdfast.model.health import Remedy
from holdfast.model.incidents import Incident
from holdfast.model.sagemaker import EventLevel, ResourceType

_SPACE: Final = uuid.UUID("9a4f6d52-8f0e-4c2b-9d0e-6d1b8d2f5c11")
"""UUID namespace of event IDs: the same step of an incident always has the same ID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentStep:
    """Event of an incident."""

    id: str
    at: datetime
    node: str
    """``NodeLogicalId`` of the node."""

    name: str = ""
    """Name of the node, if known."""

    group: str
    instance_id: str
    level: EventLevel
    description: str
    resource: ResourceType = ResourceType.INSTANCE


def list_cluster_events(call: Call) -> Json:
    """See ``ListClusterEvents``."""
    request = call.request
    cluster = call.cluster()
    found = [one for one in _steps(cluster) if _is_selected(one, request)]
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
    event_id = call.request["EventId"]
    for one in _steps(cluster):
        if one.id == event_id:
            details = {"EventDetails": {"EventMetadata": _metadata(one)}}
            return {"EventDetails": {**_event(call, cluster, one), **details}}
    raise ResourceNotFound(f"Event with id {event_id} not found")


def _metadata(step: IncidentStep) -> Json:
    metadata: Json = {
        "FailureMessage": step.description if step.level is EventLevel.ERROR else None
    }
    if step.resource is ResourceType.INSTANCE:
        metadata["NodeLogicalId"] = step.node or None
    return {step.resource: metadata}


def _steps(cluster: Cluster) -> Iterator[IncidentStep]:
    for one in cluster.cluster_events():
        yield IncidentStep(
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
    known_as = _logical_ids(cluster)
    for incident in cluster.incidents():
        if not incident.node:
            continue  # the API has no events of checkpoints
        group = groups.get(incident.back, "")
        for step in _steps_of(incident):
            yield replace(step, group=group, node=known_as.get(step.instance_id, step.name))


def _logical_ids(cluster: Cluster) -> dict[str, str]:
    """``instance ID -> NodeLogicalId`` of all nodes, including removed ones."""
    reported = {
        one.instance_id: one.logical_id for one in cluster.cluster_events() if one.logical_id
    }
    return {**reported, **{one.instance_id: one.known_as for one in cluster.nodes()}}


def _steps_of(incident: Incident) -> Iterator[IncidentStep]:
    """Steps of an incident, without instance group and logical IDs."""
    node = incident.node
    work = "deep health check" if incident.remedy == Remedy.NONE else incident.remedy
    what = f"{incident.reason}: {incident.message}" if incident.message else incident.reason
    level = level_of(incident.reason)
    yield _step(incident, "detected", incident.detected_at, f"{node}: {what}", level)
    early = (
        ("drained", incident.drained_at, f"{node} was drained; {work} started"),
        ("vanished", incident.vanished_at, f"{node} disappeared"),
    )
    for name, at, text in early:
        level = EventLevel.WARN if name == "vanished" else EventLevel.INFO
        if at is not None:
            yield _step(incident, name, at, text, level)
    remarks = incident.check_remarks
    level = EventLevel.WARN if remarks else EventLevel.INFO
    passed = f"{incident.back} passed its deep health check" + (f"; {remarks}" if remarks else "")
    skipped = incident.released_at if remarks and incident.checked_at is None else None
    late = (
        ("repaired", incident.repaired_at, _repaired(incident), EventLevel.INFO),
        ("checked", incident.checked_at, passed, level),
        ("check-skipped", skipped, f"The check of {incident.back} was skipped; {remarks}", level),
        ("released", incident.released_at, f"{incident.back} is schedulable", EventLevel.INFO),
    )
    for name, at, text, level in late:
        if at is not None:
            yield _step(incident, name, at, text, level, is_back=True)


def _repaired(incident: Incident) -> str:
    """Message for the end of a repair; a replacement names both machines."""
    if not incident.successor_id:
        return f"{incident.node}: {incident.remedy} is done"
    old, new = instance_id(incident.provider_id), instance_id(incident.successor_id)
    return f"{incident.node} ({old}) was replaced by {incident.back} ({new})"


def _step(
    incident: Incident,
    name: str,
    at: datetime,
    description: str,
    level: EventLevel,
    *,
    is_back: bool = False,
) -> IncidentStep:
    """Step of the faulty machine, or of the machine that replaced it."""
    machine = incident.successor_id if is_back else ""
    return IncidentStep(
        id=str(uuid.uuid5(_SPACE, f"{incident.id}/{name}")),
        at=at,
        node="",
        name=incident.back if is_back else incident.node,
        group="",
        instance_id=instance_id(machine or incident.provider_id),
        level=level,
        description=description,
    )


def _is_selected(step: IncidentStep, request: Json) -> bool:
    after, before = request.get("EventTimeAfter"), request.get("EventTimeBefore")
    return (
        (after is None or step.at > after)
        and (before is None or step.at < before)
        and request.get("InstanceGroupName", step.group) == step.group
        and request.get("NodeId", step.instance_id) in (step.instance_id, step.node, step.name)
        and request.get("ResourceType", step.resource) == step.resource
    )


def _event(call: Call, cluster: Cluster, step: IncidentStep) -> Json:
    return {
        "EventId": step.id,
        "ClusterArn": call.place.arn(cluster.id),
        "ClusterName": cluster.name,
        "InstanceGroupName": step.group or None,
        "InstanceId": step.instance_id or None,
        "ResourceType": step.resource,
        "EventTime": step.at,
        "EventLevel": step.level,
        "Description": step.description,
    }
