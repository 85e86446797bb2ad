"""Events in the format of SageMaker's cluster events in EventBridge."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast.decisions.event_levels import event_level
from holdfast.decisions.planned_work import is_planned
from holdfast.engine.wording import sentence
from holdfast.kit.serial import to_plain
from holdfast.model.events import Event, NodeQuarantined, NodeReassigned, NodeReleased
from holdfast.model.health import Remedy
from holdfast.model.sagemaker import EventLevel

HEALTH: Final = "SageMaker HyperPod Cluster Node Health Event"
CLUSTER: Final = "SageMaker HyperPod Cluster Event"

_ACTIONS: Final = {Remedy.REBOOT: "Reboot", Remedy.REPLACE: "Replace", Remedy.RESET_GPU: "Reboot"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Source of the events."""

    cluster: str
    source: str
    region: str
    account: str


def envelope(event: Event, at: datetime, origin: Origin) -> dict[str, Any]:
    """Event in EventBridge format, with all its own fields under ``detail.Holdfast``."""
    is_health = _is_health(event)
    event_id = str(uuid.uuid4())
    detail = _health(event, origin) if is_health else _cluster_event(event, at, event_id, origin)
    return {
        "version": "0",
        "id": event_id,
        "detail-type": HEALTH if is_health else CLUSTER,
        "source": origin.source,
        "account": origin.account,
        "time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": origin.region,
        "resources": [],
        "detail": {**detail, "Holdfast": {"event": event.name, **to_plain(event)}},
    }


def _is_health(event: Event) -> bool:
    """Return whether an event changes the health of a node, which planned work does not."""
    if isinstance(event, NodeQuarantined | NodeReassigned):
        return not is_planned(event.reason)
    return isinstance(event, NodeReleased) and not is_planned(event.after)


def _health(event: Event, origin: Origin) -> dict[str, Any]:
    if isinstance(event, NodeQuarantined | NodeReassigned):
        summary = {
            "HealthStatus": "Unhealthy",
            "HealthStatusReason": f"{event.reason}: {event.message}",
            "RepairAction": _ACTIONS.get(Remedy(event.remedy), "None"),
            "Recommendation": sentence(event),
        }
    else:
        summary = {
            "HealthStatus": "Healthy",
            "HealthStatusReason": sentence(event),
            "RepairAction": "None",
            "Recommendation": "",
        }
    node = getattr(event, "node", "")
    return {"ClusterName": origin.cluster, "NodeLogicalId": node, "HealthSummary": summary}


def _cluster_event(event: Event, at: datetime, event_id: str, origin: Origin) -> dict[str, Any]:
    node = getattr(event, "node", "")
    level = event_level(event)
    instance = {"NodeLogicalId": node}
    if level is EventLevel.ERROR:
        instance["FailureMessage"] = sentence(event)
    details: dict[str, Any] = {
        "EventId": event_id,
        "ClusterName": origin.cluster,
        "ResourceType": "Instance" if node else "Cluster",
        "EventTime": int(at.timestamp() * 1000),
        "EventLevel": level,
        "Description": sentence(event),
    }
    if node:
        details["EventDetails"] = {"EventMetadata": {"Instance": instance}}
    return {"EventDetails": details}
