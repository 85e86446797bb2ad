"""State of Node objects: the fields that Holdfast reads; informers discard all others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from sys import intern
from typing import Final, NamedTuple

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import EPOCH, parse_time
from holdfast.decisions.succession import Arrival
from holdfast.model.names import (
    AGENT_HEALTH_STATUS,
    CORDONED,
    HOLD,
    RECORD,
    REPLACES,
    REPORT,
    REQUEST,
    Condition,
    DeepCheckStatus,
    Labels,
)

NO_SCHEDULE: Final = "NoSchedule"
READY: Final = "Ready"
UNKNOWN: Final = "Unknown"
"""Status of ``Ready`` after the node controller received no heartbeat for its grace period."""

_CONTROL_PLANE: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
_OFF: Final = frozenset(
    (
        "node.cloudprovider.kubernetes.io/shutdown",  # cloud controller: the machine is off
        "node.kubernetes.io/out-of-service",  # a person: it is off, and pods may move
    )
)
_REACHABLE: Final = "InternalIP"

Taint = tuple[tuple[str, str], ...]
"""Fields and values of a taint, sorted: ``(("effect", "NoSchedule"), ("key", "a"))``."""


class Conventions(NamedTuple):
    """Names and capabilities of one cluster."""

    labels: Labels = Labels()
    group_labels: tuple[str, ...] = ()
    """Labels with a node's group; the first that a node has counts."""

    can_check: bool = False
    """Whether deep health checks are configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """State of a Node object. Two are equal if all compared fields are, in any version."""

    name: str
    uid: str
    resource_version: int = field(compare=False)
    created_at: datetime
    provider_id: str
    """``spec.providerID``; ``kubernetes://`` and the UID if it is not set."""

    boot_id: str
    """Boot ID from the kubelet; empty before its first report."""

    ready: str
    """Status of the condition ``Ready``; ``Unknown`` without one."""

    ready_since: datetime
    agent_silent: str
    """Status of the condition ``AgentSilent``; empty without one."""

    group: str
    """``label=value`` of the group; empty if the node has none."""

    is_control_plane: bool
    is_off: bool
    """Whether a taint reports that the machine is off."""

    health: str | None
    """Value of the label, as for the fields below; None if label or annotation is absent."""

    deep_check: str | None
    is_checked: bool
    """Whether a label in either spelling reports a passed deep health check."""

    record: str | None
    report: str | None
    agent_health_status: str | None
    request: str | None
    hold: str | None
    cordoned: str | None
    replaces: str | None
    is_unschedulable: bool
    """Whether it is cordoned, by anyone."""

    taints: tuple[Taint, ...]
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)
    """All labels; used only for jobs that wait for a node."""

    addresses: tuple[str, ...] = field(default=(), compare=False)
    """Host names and IP addresses that it reports, of all types; internal IP addresses first."""

    address: str = field(default="", compare=False)
    """Address for other nodes; used only for tests between nodes."""

    label_authors: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Client that last set each of HyperPod's labels, as ``metadata.managedFields`` names it."""

    devices: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Allocatable extended resources, such as GPUs, by name."""

    def label_author(self, label: str) -> str:
        """Return who last set a label, by field manager, such as ``kubectl-label by label``."""
        client = self.label_authors.get(label)
        return f"{client} by label" if client else "the node's label"


def trimmed(node: Json, conventions: Conventions) -> NodeState:
    """Return the state of a node; ``node`` is the object from the API server."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    conditions = status.get("conditions") or ()
    ready = _condition(conditions, READY)
    created_at = parse_time(metadata.get("creationTimestamp")) or EPOCH
    taints = tuple(tuple(sorted(taint.items())) for taint in spec.get("taints") or ())
    names = conventions.labels
    checks = (labels.get(names.deep_health_check_status), labels.get(names.deep_health_check))
    return NodeState(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resource_version=int(metadata.get("resourceVersion") or 0),
        created_at=created_at,
        provider_id=spec.get("providerID") or f"kubernetes://{metadata.get('uid', '')}",
        boot_id=(status.get("nodeInfo") or {}).get("bootID", ""),
        ready=ready.get("status", UNKNOWN),
        ready_since=parse_time(ready.get("lastTransitionTime")) or created_at,
        agent_silent=_condition(conditions, Condition.AGENT_SILENT).get("status", ""),
        group=_group(labels, conventions.group_labels),
        is_control_plane=any(label in labels for label in _CONTROL_PLANE),
        is_off=any(dict(taint).get("key") in _OFF for taint in taints),
        health=labels.get(names.node_health_status),
        deep_check=checks[0],
        is_checked=DeepCheckStatus.PASSED in checks,
        record=annotations.get(RECORD),
        report=annotations.get(REPORT),
        agent_health_status=annotations.get(AGENT_HEALTH_STATUS),
        request=annotations.get(REQUEST),
        hold=annotations.get(HOLD),
        cordoned=annotations.get(CORDONED),
        replaces=annotations.get(REPLACES),
        is_unschedulable=bool(spec.get("unschedulable")),
        taints=taints,
        labels={intern(key): intern(value) for key, value in labels.items()},
        address=_address(status),
        addresses=_addresses(status),
        label_authors=_label_authors(metadata, names),
        devices=_devices(status),
    )


def _label_authors(metadata: Json, names: Labels) -> Mapping[str, str]:
    """Return the last client that owns each label by which a repair can be requested."""
    found: dict[str, str] = {}
    entries = metadata.get("managedFields") or ()
    for entry in sorted(entries, key=lambda one: one.get("time") or ""):
        owned = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        for label in (names.node_health_status, names.deep_health_check_status):
            if f"f:{label}" in (owned.get("f:labels") or {}):
                found[label] = intern(str(entry.get("manager") or ""))
    return found


def _devices(status: Json) -> Mapping[str, int]:
    return {
        intern(name): int(amount)
        for name, amount in (status.get("allocatable") or {}).items()
        if "/" in name and str(amount).isdecimal()
    }


def _condition(conditions: Sequence[Json], kind: str) -> Json:
    return next((one for one in conditions if one.get("type") == kind), {})


def _address(status: Json) -> str:
    """Return the address of a node for other nodes; empty if it reports none."""
    addresses = status.get("addresses") or ()
    return next((one["address"] for one in addresses if one.get("type") == _REACHABLE), "")


def _addresses(status: Json) -> tuple[str, ...]:
    reported = sorted(status.get("addresses") or (), key=lambda one: one.get("type") != _REACHABLE)
    found = (str(one.get("address") or "") for one in reported)
    return tuple(intern(one) for one in dict.fromkeys(found) if one)


def _group(labels: Mapping[str, str], group_labels: Sequence[str]) -> str:
    found = next((label for label in group_labels if label in labels), None)
    return "" if found is None else f"{found}={labels[found]}"


def arrivals(states: Iterable[NodeState]) -> list[Arrival]:
    """Return the nodes as ``decisions.succession`` matches them with leaving nodes."""
    return [
        Arrival(
            name=state.name,
            provider_id=state.provider_id,
            group=state.group,
            created_at=state.created_at,
            is_free=state.record is None and state.replaces is None and not state.is_control_plane,
            replaces=state.replaces,
        )
        for state in states
    ]
