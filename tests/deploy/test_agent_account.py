"""What an agent may do on a real API server with the token of its pod, and what not."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from installation import NODES, Installation, until

from holdfast.adapters.kubernetes.client.api import Api, Patch
from holdfast.adapters.kubernetes.client.errors import ApiError, Forbidden
from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.nodes.report_patch import conditions_patch, node_patch
from holdfast.model.health import Fault, Remedy, Severity, Urgency
from holdfast.model.names import (
    AGENT_HEALTH_STATUS,
    RECORD,
    REPORT,
    Condition,
    HealthStatus,
    Labels,
    Reason,
)
from holdfast.model.nodes import NodeRecord, Phase
from holdfast.model.report import NodeReport

OWN, OTHER = NODES
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LABELS = Labels()
HEALTH = LABELS.node_health_status
LEASES = "/apis/coordination.k8s.io/v1/namespaces/holdfast/leases"
EVENTS = "/api/v1/namespaces/default/events"
TAINT = {"key": HEALTH, "value": "Unschedulable", "effect": "NoSchedule"}


@pytest.fixture
def agent(installation: Installation) -> Iterator[Api]:
    agent = installation.agent(OWN)
    yield agent
    agent.close()
    for name in NODES:
        cleared = {
            "metadata": {
                "labels": dict.fromkeys((HEALTH, LABELS.fault_types, LABELS.fault_reasons)),
                "annotations": dict.fromkeys(
                    (REPORT, RECORD, AGENT_HEALTH_STATUS, LABELS.fault_details)
                ),
            },
            "spec": {"taints": None, "unschedulable": None},
        }
        installation.change_node(name, cleared)


def path(node: str, part: str = "") -> str:
    return f"/api/v1/nodes/{node}{part}"


def report(*remedies: Remedy, minute: int = 0) -> NodeReport:
    at = NOW + timedelta(minutes=minute)
    faults = tuple(
        Fault(
            family="gpu-xid",
            severity=Severity.FATAL,
            condition=Condition.NVIDIA_TERMINATE,
            reason=Reason.XID_REPLACE,
            remedy=remedy,
            urgency=Urgency.IMMEDIATE,
            message="NVRM: Xid (PCI:0000:b9:00): 74",
            since=at,
            device=f"gpu{number}",
        )
        for number, remedy in enumerate(remedies)
    )
    return NodeReport(node=OWN, boot_id="boot", sequence=minute, reported_at=at, faults=faults)


def tell(agent: Api, reported: NodeReport) -> None:
    """As the agent's own code does it."""
    if (change := node_patch(agent.get(path(OWN)), reported, LABELS)) is not None:
        agent.patch(path(OWN), change)
    if (
        change := conditions_patch(agent.get(path(OWN)), reported, reported.reported_at)
    ) is not None:
        agent.patch(path(OWN, "/status"), change, Patch.STRATEGIC)


def refused(agent: Api, where: str, change: Any, kind: Patch = Patch.MERGE) -> str:
    """What the API server says against a change."""
    with pytest.raises(ApiError) as caught:
        agent.patch(where, change, kind)
    return str(caught.value)


def labels(**values: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": {f"{LABELS.prefix}/{key}": one for key, one in values.items()}}}


def annotations(values: dict[str, str | None]) -> dict[str, Any]:
    return {"metadata": {"annotations": values}}


def test_an_agent_marks_its_own_node_and_takes_its_mark_back(
    agent: Api, installation: Installation
) -> None:
    installation.change_node(OWN, {"metadata": {"labels": {HEALTH: HealthStatus.SCHEDULABLE}}})

    tell(agent, report(Remedy.REBOOT))
    marked = installation.node(OWN)
    tell(agent, report(Remedy.REBOOT, Remedy.REPLACE, minute=1))
    worse = installation.node(OWN)
    tell(agent, report(minute=2))
    healthy = installation.node(OWN)

    assert marked["metadata"]["labels"][HEALTH] == HealthStatus.PENDING_REBOOT
    assert marked["spec"]["taints"] == [TAINT]
    conditions = {one["type"]: one["status"] for one in marked["status"]["conditions"]}
    assert conditions[Condition.NVIDIA_TERMINATE] == "True"
    assert conditions["Ready"] == "True"
    assert worse["metadata"]["labels"][HEALTH] == HealthStatus.PENDING_REPLACEMENT
    assert HEALTH not in healthy["metadata"]["labels"]
    assert "taints" not in healthy["spec"]


def test_an_agent_gives_a_node_back_that_its_controller_has_in_service(
    agent: Api, installation: Installation
) -> None:
    installation.change_node(OWN, {"metadata": {"labels": {HEALTH: HealthStatus.SCHEDULABLE}}})
    installation.change_node(OWN, annotations({RECORD: '{"phase":"schedulable"}'}))

    tell(agent, report(Remedy.REPLACE))
    tell(agent, report(minute=1))

    node = installation.node(OWN)
    assert node["metadata"]["labels"][HEALTH] == HealthStatus.SCHEDULABLE
    assert "taints" not in node["spec"]


@pytest.mark.parametrize("remedy", [Remedy.REBOOT, Remedy.REPLACE])
def test_what_the_controller_has_taken_up_is_not_the_agents_to_take_back(
    agent: Api, installation: Installation, remedy: Remedy
) -> None:
    tell(agent, report(remedy))
    label = installation.node(OWN)["metadata"]["labels"][HEALTH]
    installation.change_node(OWN, annotations({RECORD: '{"phase":"draining"}'}))

    assert "remove only its own mark" in refused(
        agent, path(OWN), labels(**{"node-health-status": None})
    )
    assert "only with its own mark" in refused(agent, path(OWN), {"spec": {"taints": []}})
    tell(agent, report(minute=1))

    node = installation.node(OWN)
    assert (node["metadata"]["labels"][HEALTH], node["spec"]["taints"]) == (label, [TAINT])


@pytest.mark.attack
@pytest.mark.parametrize(
    "change",
    [
        labels(**{"node-health-status": HealthStatus.PENDING_REPLACEMENT}),
        labels(**{"fault-types": "NvidiaErrorTerminate"}),
        annotations({REPORT: "{}"}),
        {"spec": {"taints": [TAINT]}},
        {"spec": {"unschedulable": True}},
    ],
)
def test_an_agent_cannot_touch_another_node(
    agent: Api, installation: Installation, change: dict[str, Any]
) -> None:
    before = installation.node(OTHER)["metadata"]["resourceVersion"]

    reported = refused(agent, path(OTHER), change)

    assert f'the agent of node "{OWN}" may change only its own Node, not "{OTHER}"' in reported
    assert installation.node(OTHER)["metadata"]["resourceVersion"] == before


@pytest.mark.attack
def test_an_agent_cannot_touch_the_status_of_another_node(agent: Api) -> None:
    condition = {"type": Condition.NVIDIA_TERMINATE, "status": "True"}
    reported = refused(
        agent, path(OTHER, "/status"), {"status": {"conditions": [condition]}}, Patch.STRATEGIC
    )

    assert "may change only its own Node" in reported


def test_a_token_that_no_pod_has_can_touch_no_node(installation: Installation, agent: Api) -> None:
    nobody = installation.agent_nowhere()

    reported = refused(nobody, path(OWN), labels(**{"fault-types": "DiskError"}))

    assert 'the agent of node "" may change only its own Node' in reported
    nobody.close()


@pytest.mark.attack
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metadata": {"labels": {"tier": "gold"}}}, "only these labels"),
        ({"metadata": {"labels": {"kubernetes.io/os": None}}}, "only these labels"),
        ({"metadata": {"labels": {"kubernetes.io/os": "plan9"}}}, "only these labels"),
        (labels(**{"deep-health-check-status": "Passed"}), "only these labels"),
        (annotations({RECORD: '{"phase":"schedulable"}'}), "only these annotations"),
        (annotations({"holdfast.dev/request": "{}"}), "only these annotations"),
        ({"metadata": {"finalizers": ["example.org/never"]}}, "conditions and the taint"),
        ({"spec": {"unschedulable": True}}, "conditions and the taint"),
        ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, "conditions and the"),
        ({"spec": {"taints": [{**TAINT, "effect": "NoExecute"}]}}, "effect NoSchedule"),
        ({"spec": {"taints": [{**TAINT, "value": "Never"}]}}, "value Unschedulable"),
        (labels(**{"node-health-status": "UnschedulablePendingReplacement"}), "only with the same"),
        (labels(**{"node-health-status": "Schedulable"}), "remove only its own mark"),
        (labels(**{"node-health-status": "Unschedulable"}), "remove only its own mark"),
        (
            annotations({AGENT_HEALTH_STATUS: "UnschedulablePendingReboot"}),
            "only to the health label",
        ),
    ],
)
def test_an_agent_changes_only_its_own_marks_of_its_node(
    agent: Api, installation: Installation, change: dict[str, Any], why: str
) -> None:
    before = installation.node(OWN)["metadata"]["resourceVersion"]

    assert why in refused(agent, path(OWN), change)
    assert why in refused(agent, path(OWN), change, Patch.STRATEGIC)
    assert installation.node(OWN)["metadata"]["resourceVersion"] == before


@pytest.mark.attack
@pytest.mark.parametrize("phase", [None, Phase.SCHEDULABLE, Phase.JOINING])
def test_an_agent_cannot_turn_its_mark_into_the_request_of_a_person(
    agent: Api, installation: Installation, phase: Phase | None
) -> None:
    unmarked = annotations({AGENT_HEALTH_STATUS: None})
    installation.change_node(OWN, labels(**{"node-health-status": "Schedulable"}))
    if phase is not None:
        record = NodeRecord(phase=phase, phase_since=NOW - timedelta(hours=1))
        installation.change_node(OWN, annotations({RECORD: compact_json(record)}))
    tell(agent, report(Remedy.REPLACE))
    marked = installation.node(OWN)["metadata"]
    assert marked["annotations"][AGENT_HEALTH_STATUS] == marked["labels"][HEALTH]

    assert "only with the same" in refused(agent, path(OWN), unmarked)

    installation.change_node(OWN, labels(**{"node-health-status": "UnschedulablePendingReboot"}))
    agent.patch(path(OWN), unmarked)  # a person's label stays
    after = installation.node(OWN)["metadata"]["labels"][HEALTH]
    assert after == HealthStatus.PENDING_REBOOT


@pytest.mark.parametrize("where", ["", "/status"])
def test_the_mark_of_others_stays_also_by_way_of_the_status(
    agent: Api, installation: Installation, where: str
) -> None:
    installation.change_node(OWN, labels(**{"node-health-status": "UnschedulablePendingReboot"}))

    reported = refused(agent, path(OWN, where), labels(**{"node-health-status": None}))

    assert "remove only its own mark" in reported


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [{"type": "Ready", "status": "False"}]},
        {"conditions": [{"type": "EverythingFine", "status": "True"}]},
        {"capacity": {"nvidia.com/gpu": "16"}},
        {"allocatable": {"nvidia.com/gpu": "16"}},
        {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
        {"nodeInfo": {"bootID": "other"}},
        {"images": [{"names": ["a"], "sizeBytes": 1}]},
    ],
)
def test_an_agent_changes_only_its_own_conditions_of_the_status(
    agent: Api, status: dict[str, Any]
) -> None:
    reported = refused(agent, path(OWN, "/status"), {"status": status}, Patch.STRATEGIC)

    assert "may change only these conditions" in reported


def lease(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": "boot", "leaseDurationSeconds": 60},
    }


@pytest.mark.attack
def test_an_agent_holds_its_own_lease_and_no_other(agent: Api, installation: Installation) -> None:
    agent.create(LEASES, lease(OWN))
    agent.patch(f"{LEASES}/{OWN}", {"spec": {"holderIdentity": "next"}})
    installation.plane.request("POST", LEASES, lease(OTHER))

    with pytest.raises(ApiError, match="may hold only the Lease of that name"):
        agent.create(LEASES, lease("node-c"))
    reported = refused(agent, f"{LEASES}/{OTHER}", {"spec": {"holderIdentity": "me"}})
    assert "may hold only the Lease of that name" in reported
    with pytest.raises(Forbidden):
        agent.patch(
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + OWN,
            {"spec": {"holderIdentity": "me"}},
        )


def event(name: str, node: str, kind: str = "Node") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": kind, "name": node},
        "type": "Warning",
        "reason": Reason.XID_REPLACE,
        "message": "a",
        "count": 1,
    }


def test_an_agent_reports_events_of_its_own_node_and_of_no_other(
    agent: Api, installation: Installation
) -> None:
    agent.create(EVENTS, event("own", OWN))
    agent.patch(f"{EVENTS}/own", {"count": 2})
    installation.plane.request("POST", EVENTS, event("other", OTHER))

    for stranger in (event("a", OTHER), event("b", OWN, kind="Pod")):
        with pytest.raises(ApiError, match="may report only Events of its own Node"):
            agent.create(EVENTS, stranger)
    for change in ({"count": 2}, {"involvedObject": {"name": OWN}}):
        reported = refused(agent, f"{EVENTS}/other", change)
        assert "may report only Events of its own Node" in reported


@pytest.mark.parametrize(
    "what",
    [
        "/api/v1/nodes",
        "/api/v1/pods",
        "/api/v1/secrets",
        "/api/v1/namespaces/holdfast/secrets",
        "/api/v1/namespaces/holdfast/configmaps",
        "/api/v1/namespaces/holdfast/serviceaccounts",
        "/api/v1/namespaces/default/events",
        LEASES,
        "/apis/holdfast.dev/v1/incidents",
    ],
)
def test_an_agent_reads_nothing_but_nodes_by_name(agent: Api, what: str) -> None:
    with pytest.raises(Forbidden):
        agent.get(what)


def test_an_agent_deletes_nothing(agent: Api) -> None:
    for what in (path(OWN), f"{LEASES}/{OWN}", "/api/v1/namespaces/holdfast/pods/any"):
        with pytest.raises(Forbidden):
            agent.delete(what)


def test_no_expression_of_a_policy_is_in_doubt(installation: Installation) -> None:
    """The API server checks expressions against the kinds that they are for, in its own time."""

    def checked() -> list[dict[str, Any]]:
        kind = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        found = installation.plane.request("GET", kind)["items"]
        return [one["status"] for one in found if "typeChecking" in one.get("status", {})]

    until(lambda: len(checked()) == 4)
    assert [one["typeChecking"] for one in checked()] == [{}] * 4


def test_agents_come_to_every_node_whatever_its_taints(installation: Installation) -> None:
    taints = [TAINT, {"key": "gone", "effect": "NoExecute"}]
    installation.change_node(OTHER, {"spec": {"taints": taints}})

    installation.kubectl(
        "delete", "pods", "--namespace=holdfast", "--all", "--force", "--wait=false"
    )

    installation.agent(OTHER).close()
    installation.change_node(OTHER, {"spec": {"taints": None}})
