"""Node objects as the API server gives them, for tests of what is made of them."""

import json
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import strategies as st

from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.nodes.node import Conventions, trimmed
from holdfast.model.health import Remedy
from holdfast.model.names import (
    AGENT_HEALTH_STATUS,
    CORDONED,
    RECORD,
    REPORT,
    HealthStatus,
    Labels,
)
from holdfast.model.nodes import Phase
from holdfast.model.report import NodeReport
from tests.ports.builders import NOW, a_fault, a_record, a_remediation

LABELS = Labels()
HEALTH = LABELS.node_health_status
DEEP = LABELS.deep_health_check_status
GROUP = "karpenter.sh/nodepool"
CONVENTIONS = Conventions(labels=LABELS, group_labels=(GROUP, "pool"), can_check=True)
TAINT = {"key": HEALTH, "value": "Unschedulable", "effect": "NoSchedule"}


def a_node_object(
    *,
    name: str = "node-1",
    labels=None,
    annotations=None,
    taints=(),
    unschedulable=False,
    ready="True",
    boot_id="boot-1",
    created="2026-01-01T11:00:00Z",
    provider_id: str | None = "i-1",
) -> dict:
    spec = {"taints": list(taints)} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    if provider_id is not None:
        spec["providerID"] = provider_id
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T11:30:00Z"}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "resourceVersion": "7",
            "creationTimestamp": created,
            "labels": {key: str(value) for key, value in (labels or {}).items()},
            "annotations": dict(annotations or {}),
        },
        "spec": spec,
        "status": {"nodeInfo": {"bootID": boot_id}, "conditions": [condition] if ready else []},
    }


def state_of(node: dict):
    return trimmed(json.loads(json.dumps(node)), CONVENTIONS)


def merged(node: dict, patch: dict | None) -> dict:
    """RFC 7386, as the API server does it."""
    return node if patch is None else _merge(deepcopy(node), patch)


def _merge(target, patch):
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def a_report(*faults, boot_id="boot-1", **changes) -> str:
    said = NodeReport(
        node="node-1", boot_id=boot_id, sequence=1, reported_at=NOW, faults=tuple(faults)
    )
    return compact_json(replace(said, **changes))


phases = st.sampled_from(list(Phase))
remedies = st.sampled_from([Remedy.NONE, Remedy.REBOOT, Remedy.REPLACE])


@st.composite
def records(draw):
    """Records as the core makes them: with a course wherever one is needed."""
    phase = draw(phases)
    needs = phase in (Phase.QUARANTINED, Phase.DRAINING, Phase.REBOOTING, Phase.REPLACING)
    may = needs or (phase in (Phase.JOINING, Phase.CHECKING) and draw(st.booleans()))
    remediation = a_remediation(
        draw(remedies),
        repairs=draw(st.integers(0, 2)),
        machine=draw(st.sampled_from(["", "i-1#boot-1"])),
        condition=draw(st.sampled_from([a_fault().condition, "DeepHealthCheckFailed"])),
    )
    return a_record(
        phase,
        remediation=remediation if may else None,
        checked_machine=draw(st.sampled_from(["", "i-1#boot-1", "i-1#boot-0"])),
    )


foreign_taints = st.lists(
    st.sampled_from(
        [
            {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
            {"key": HEALTH, "value": "x", "effect": "NoExecute"},
            {
                "key": "other",
                "value": "v",
                "effect": "NoExecute",
                "timeAdded": "2026-01-01T00:00:00Z",
            },
        ]
    ),
    max_size=2,
    unique_by=lambda taint: taint["key"],
)
own_taints = st.lists(
    st.sampled_from([TAINT, {**TAINT, "value": "UnschedulablePendingReplace"}]), max_size=1
)
texts = st.text(max_size=20)
labels_of_health = st.none() | st.sampled_from(list(HealthStatus)).map(str) | texts
optional_texts = st.none() | texts


@st.composite
def node_objects(draw, *, may_be_cordoned=True):
    """Nodes as anybody may have left them."""
    cordons = st.booleans() if may_be_cordoned else st.just(False)
    record = draw(st.none() | records())
    labels = {
        "kept": "yes",
        HEALTH: draw(labels_of_health),
        DEEP: draw(st.none() | st.sampled_from(["Passed", "Failed", "InProgress", "odd"])),
    }
    annotations = {
        "kept": "yes",
        RECORD: None if record is None else compact_json(record),
        REPORT: draw(st.none() | st.just(a_report()) | texts),
        AGENT_HEALTH_STATUS: draw(st.none() | st.sampled_from(list(HealthStatus)).map(str)),
        CORDONED: "true" if draw(cordons) else None,
    }
    return a_node_object(
        labels={key: value for key, value in labels.items() if value is not None},
        annotations={key: value for key, value in annotations.items() if value is not None},
        taints=[*draw(foreign_taints), *draw(own_taints)],
        unschedulable=draw(cordons),
        ready=draw(st.sampled_from(["True", "False", "Unknown", ""])),
        boot_id=draw(st.sampled_from(["", "boot-1", "boot-2"])),
    )


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
