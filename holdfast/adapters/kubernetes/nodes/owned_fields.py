"""Fields of a Node object that Holdfast has written, and the patch that removes them: pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.nodes import agent_events, events
from holdfast.adapters.kubernetes.nodes.encoding import boot_id, parse_annotations
from holdfast.adapters.kubernetes.nodes.node import NO_SCHEDULE, Conventions, NodeState, trimmed
from holdfast.decisions.node_labels import deep_check_status, health_status
from holdfast.model.names import (
    AGENT_HEALTH_STATUS,
    CORDONED,
    HARDWARE,
    HOLD,
    RECORD,
    REPLACES,
    REPORT,
    REQUEST,
    HealthStatus,
)
from holdfast.model.nodes import NodeView

MANAGERS: Final = frozenset((agent_events.COMPONENT, events.COMPONENT))
"""Field managers of agents and controllers, in ``metadata.managedFields``."""

_ANNOTATIONS: Final = (RECORD, REPORT, HARDWARE, AGENT_HEALTH_STATUS, REQUEST, CORDONED, REPLACES)
"""Annotations that only Holdfast uses; a remaining request would be carried out after the next
installation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedFields:
    """Fields of one node that Holdfast has written."""

    removes: tuple[str, ...]
    """Names of fields to remove, such as ``label sagemaker.amazonaws.com/fault-types``."""

    keeps: tuple[str, ...]
    """Fields that Holdfast uses but another writer owns, each with the reason."""

    patch: Json | None
    """Merge patch of the object; None if there is nothing to remove."""

    status: Json | None
    """Strategic merge patch of its status; None if there is no condition to remove."""


def is_written_by_us(thing: Json, *path: str) -> bool:
    """Whether an agent or a controller last wrote a field, or any field if no path is given."""
    return any(_has(entry, path) for entry in _entries(thing) if entry.get("manager") in MANAGERS)


def owned_fields(
    node: Json, conventions: Conventions, now: datetime, *, keeps_cordons: bool
) -> OwnedFields:
    """Return the fields of a node that Holdfast has written.

    Args:
        node: the object from the API server.
        conventions: names of labels.
        now: current time.
        keeps_cordons: whether a node that is out of service stays cordoned, as if by a person.

    """
    state = trimmed(node, conventions)
    annotations = {key for key in _ANNOTATIONS if key in _metadata(node, "annotations")}
    details = conventions.labels.fault_details
    if details in _metadata(node, "annotations") and _is_own(node, state, "annotations", details):
        annotations.add(details)
    labels, foreign = _labels(node, state, conventions, now)
    removes = [*(f"label {key}" for key in labels), *(f"annotation {key}" for key in annotations)]
    keeps = [*foreign, *([f"annotation {HOLD}: set by a user"] if state.hold is not None else [])]
    spec = _spec(node, state, conventions, removes, keeps, keeps_cordons=keeps_cordons)
    conditions = sorted(_conditions(node))
    removed = {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(sorted(annotations))}
    about = {"resourceVersion": node["metadata"]["resourceVersion"]}
    patch = {
        "metadata": {**about, **{key: one for key, one in removed.items() if one}},
        "spec": spec,
    }
    deleted = [{"type": one, "$patch": "delete"} for one in conditions]
    return OwnedFields(
        removes=(*removes, *(f"condition {one}" for one in conditions)),
        keeps=tuple(keeps),
        patch=patch if labels or annotations or spec else None,
        status={"status": {"conditions": deleted}} if conditions else None,
    )


def _labels(
    node: Json, state: NodeState, conventions: Conventions, now: datetime
) -> tuple[list[str], list[str]]:
    """Return keys of Holdfast's labels, and sentences about labels of others."""
    names, present = conventions.labels, _metadata(node, "labels")
    own, foreign = [], []
    for key in (names.node_health_status, names.deep_health_check_status):
        value = present.get(key)
        if value is None:
            continue
        is_own = is_written_by_us(node, "f:metadata", "f:labels", f"f:{key}")
        if is_own or value in _statuses(state, conventions, now):
            own.append(key)
        else:
            foreign.append(f"label {key}={value}: not set by Holdfast")
    of_agents = (names.fault_types, names.fault_reasons)
    own += [one for one in of_agents if one in present and _is_own(node, state, "labels", one)]
    return own, foreign


def _statuses(state: NodeState, conventions: Conventions, now: datetime) -> set[str]:
    """Return label values that follow from the record: a handled request becomes a status.

    ``Schedulable`` is not among them, as HyperPod also sets it on its nodes.
    """
    parsed = parse_annotations(state, conventions, now)
    found: set[str | None] = {state.agent_health_status}
    if parsed.record is not None:
        view = NodeView(
            name=state.name,
            provider_id=state.provider_id,
            boot_id=boot_id(state, parsed),
            record=parsed.record,
        )
        found.add(health_status(parsed.record))
        found.add(deep_check_status(view))
    return {one for one in found if one not in (None, HealthStatus.SCHEDULABLE)}


def _is_own(node: Json, state: NodeState, part: str, key: str) -> bool:
    """Whether Holdfast's agent wrote a field whose name HyperPod's agent uses, too."""
    return state.report is not None or is_written_by_us(node, "f:metadata", f"f:{part}", f"f:{key}")


def _spec(
    node: Json,
    state: NodeState,
    conventions: Conventions,
    removes: list[str],
    keeps: list[str],
    *,
    keeps_cordons: bool,
) -> Json:
    """Return the patch of taints and cordon; appends to ``removes`` and ``keeps``."""
    spec: Json = {}
    key = conventions.labels.node_health_status
    taints = (node.get("spec") or {}).get("taints") or []
    others = [one for one in taints if (one["key"], one["effect"]) != (key, NO_SCHEDULE)]
    is_owned = state.record is not None or state.agent_health_status is not None
    is_own = is_owned or is_written_by_us(node, "f:spec", "f:taints")
    if others != taints and is_own:
        spec["taints"] = others or None
        removes.append(f"taint {key}")
    elif others != taints:
        keeps.append(f"taint {key}: not set by Holdfast")
    if state.is_unschedulable and state.cordoned is None:
        keeps.append("cordon: not set by Holdfast")
    elif keeps_cordons and (state.cordoned is not None or "taints" in spec):
        spec |= {} if state.is_unschedulable else {"unschedulable": True}
        keeps.append("cordon: --keep-cordoned")
    elif state.is_unschedulable:
        spec["unschedulable"] = None
        removes.append("cordon")
    return spec


def _conditions(node: Json) -> Iterator[str]:
    """Yield types of the conditions that only agents and controllers of Holdfast write."""
    owners: dict[str, set[bool]] = {}
    for entry in _entries(node):
        for key in _at(entry, ("f:status", "f:conditions")):
            if key.startswith("k:"):
                kind = json.loads(key.removeprefix("k:")).get("type", "")
                owners.setdefault(kind, set()).add(entry.get("manager") in MANAGERS)
    present = {one["type"] for one in (node.get("status") or {}).get("conditions") or ()}
    return (kind for kind, own in owners.items() if own == {True} and kind in present)


def _metadata(node: Json, part: str) -> dict[str, str]:
    return node["metadata"].get(part) or {}


def _entries(thing: Json) -> list[Json]:
    return thing["metadata"].get("managedFields") or []


def _has(entry: Json, path: tuple[str, ...]) -> bool:
    return not path or path[-1] in _at(entry, path[:-1])


def _at(entry: Json, path: tuple[str, ...]) -> dict[str, Any]:
    place: Any = entry.get("fieldsV1") or {}
    for key in path:
        place = place.get(key) or {}
    return place if isinstance(place, dict) else {}
