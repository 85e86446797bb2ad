"""What a controller may do on a real API server with its account, and what not."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from installation import NODES, Installation

from holdfast.adapters.kubernetes.client.api import Api, Patch
from holdfast.adapters.kubernetes.client.errors import ApiError, Forbidden
from holdfast.model.names import RECORD, Labels
from tests.engines.control_plane import Refused

NODE = NODES[0]
NAMESPACED = "/api/v1/namespaces/holdfast"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/holdfast/leases"
JOBS = "/apis/batch/v1/namespaces/holdfast/jobs"
INCIDENTS = "/apis/holdfast.dev/v1/incidents"
HEALTH = Labels().node_health_status


@pytest.fixture
def controller(installation: Installation) -> Iterator[Api]:
    controller = installation.controller()
    yield controller
    controller.close()


def made(kind: str, name: str, version: str = "v1", **parts: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **parts}


def pod(name: str) -> dict[str, Any]:
    container = {"name": "train", "image": "train"}
    return made("Pod", name, spec={"nodeName": NODE, "containers": [container]})


def test_a_controller_marks_cordons_and_releases_a_node(
    controller: Api, installation: Installation
) -> None:
    path = f"/api/v1/nodes/{NODE}"
    marks = {
        "labels": {HEALTH: "UnschedulablePendingReplacement"},
        "annotations": {RECORD: '{"phase":"draining"}'},
    }
    controller.patch(path, {"metadata": marks, "spec": {"unschedulable": True}})
    silent = {"type": "AgentSilent", "status": "True"}
    controller.patch(f"{path}/status", {"status": {"conditions": [silent]}}, Patch.STRATEGIC)
    released = {"labels": {HEALTH: None}, "annotations": {RECORD: None}}
    controller.patch(path, {"metadata": released, "spec": {"unschedulable": None}})

    assert NODE in [node["metadata"]["name"] for node in controller.list("/api/v1/nodes")]
    assert "unschedulable" not in installation.node(NODE)["spec"]


def test_a_controller_drains_a_node_and_forgets_it(
    controller: Api, installation: Installation
) -> None:
    installation.add_node("node-leaving")
    for name in ("rank-0", "rank-1"):
        installation.plane.request("POST", "/api/v1/namespaces/default/pods", pod(name))

    on_node = controller.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={NODE}"})
    assert {"rank-0", "rank-1"} <= {one["metadata"]["name"] for one in on_node}
    eviction = made("Eviction", "rank-0", "policy/v1")
    controller.create("/api/v1/namespaces/default/pods/rank-0/eviction", eviction)
    controller.delete("/api/v1/namespaces/default/pods/rank-1", grace=0)
    controller.delete("/api/v1/nodes/node-leaving")

    with pytest.raises(Refused, match="404"):
        installation.plane.request("GET", "/api/v1/namespaces/default/pods/rank-1")


def test_a_controller_keeps_its_state_and_its_lease(controller: Api) -> None:
    controller.create(f"{NAMESPACED}/configmaps", made("ConfigMap", "holdfast-state"))
    only = {"fieldSelector": "metadata.name=holdfast-state"}
    assert len(list(controller.list(f"{NAMESPACED}/configmaps", only))) == 1
    controller.patch(f"{NAMESPACED}/configmaps/holdfast-state", {"data": {"breaker": "{}"}})
    lease = made("Lease", "holdfast-controller", "coordination.k8s.io/v1")
    stored = controller.create(LEASES, lease)
    controller.replace(f"{LEASES}/holdfast-controller", stored)


def test_a_controller_without_an_image_for_checks_ends_checks_and_starts_none(
    controller: Api, installation: Installation
) -> None:
    container = {"name": "check", "image": "check"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    check = made("Job", "check", "batch/v1", spec={"template": template})

    with pytest.raises(Forbidden):
        controller.create(JOBS, check)
    installation.plane.request("POST", JOBS, check)
    controller.delete(f"{JOBS}/check", propagation="Background")


def test_a_controller_suspends_jobs_and_says_that_they_failed(
    controller: Api, installation: Installation
) -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    container = {"name": "train", "image": "train"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    installation.plane.request(
        "POST", jobs, made("Job", "train", "batch/v1", spec={"template": template})
    )

    controller.patch(f"{jobs}/train", {"spec": {"suspend": True}})
    controller.patch(f"{jobs}/train/status", {"status": {}})

    assert controller.get(f"{jobs}/train")["spec"]["suspend"] is True
    assert "train" in [one["metadata"]["name"] for one in controller.list("/apis/batch/v1/jobs")]


def test_a_controller_reads_logs_and_the_rules_for_them_and_runs_nothing_in_pods(
    controller: Api, installation: Installation
) -> None:
    default = "/api/v1/namespaces/default"
    installation.plane.request("POST", f"{default}/pods", pod("talks"))
    rules = made("ConfigMap", "log-monitoring", data={"log-monitoring": "[]"})
    installation.plane.request("POST", f"{default}/configmaps", rules)

    assert controller.get(f"{default}/configmaps/log-monitoring")["data"] == rules["data"]
    with pytest.raises(ApiError) as no_kubelet:
        controller.opened(f"{default}/pods/talks/log", {}, timedelta(seconds=1))
    assert not isinstance(no_kubelet.value, Forbidden)
    with pytest.raises(Forbidden):
        controller.get(f"{default}/pods/talks/exec", {"command": "true", "stdout": "true"})


@pytest.mark.parametrize("namespace", ["holdfast", "kube-node-lease"])
def test_a_controller_reads_signs_of_life(
    controller: Api, installation: Installation, namespace: str
) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = made("Lease", "node-quiet", "coordination.k8s.io/v1")
    installation.plane.request("POST", leases, lease)

    controller.get(f"{leases}/node-quiet")
    assert "node-quiet" in [one["metadata"]["name"] for one in controller.list(leases)]


def test_a_controller_writes_the_history(controller: Api, installation: Installation) -> None:
    at = "2026-01-01T00:00:00Z"
    spec = {
        "id": "a",
        "node": NODE,
        "providerId": "i-0",
        "reason": "NodeSilent",
        "remedy": "replace",
        "detectedAt": at,
        "quarantinedAt": at,
    }
    controller.create(INCIDENTS, made("Incident", "a", "holdfast.dev/v1", spec=spec))
    controller.patch(f"{INCIDENTS}/a", {"spec": {"drainedAt": at}})

    assert NODE in installation.kubectl("get", "incidents")
    controller.delete(f"{INCIDENTS}/a")


def test_a_controller_reports_events_of_nodes_and_of_jobs(controller: Api) -> None:
    for namespace, kind in (("default", "Node"), ("holdfast", "Job")):
        about = {"kind": kind, "name": NODE}
        if kind == "Job":
            about["namespace"] = namespace
        event = made("Event", "a", reason="NodeReleased", involvedObject=about)
        path = f"/api/v1/namespaces/{namespace}/events"
        controller.create(path, event)
        controller.patch(f"{path}/a", {"count": 2})


@pytest.mark.parametrize(
    "what",
    [
        "/api/v1/secrets",
        f"{NAMESPACED}/secrets",
        f"{NAMESPACED}/secrets/holdfast-webhook",
        f"{NAMESPACED}/configmaps",
        f"{NAMESPACED}/configmaps/kube-root-ca.crt",
        f"{NAMESPACED}/serviceaccounts",
        "/api/v1/namespaces",
        "/api/v1/namespaces/kube-system/configmaps",
        "/apis/apps/v1/deployments",
        "/apis/batch/v1/namespaces/default/cronjobs",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        "/apis/karpenter.sh/v1/nodeclaims",
        "/apis/cluster.x-k8s.io/v1beta1/machines",
    ],
)
def test_a_controller_cannot_read_what_it_does_not_need(controller: Api, what: str) -> None:
    with pytest.raises(Forbidden):
        controller.get(what)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/namespaces/default/pods", pod("mine")),
        ("/api/v1/nodes", made("Node", "mine")),
        ("/apis/batch/v1/namespaces/default/jobs", made("Job", "mine", "batch/v1")),
        (f"{NAMESPACED}/secrets", made("Secret", "mine")),
        (f"{NAMESPACED}/serviceaccounts/holdfast-agent/token", {"spec": {}}),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", made("ClusterRole", "mine")),
    ],
)
def test_a_controller_cannot_create_what_is_not_its_own(
    controller: Api, path: str, body: dict[str, Any]
) -> None:
    with pytest.raises(Forbidden):
        controller.create(path, body)


@pytest.mark.parametrize(
    "path",
    [
        f"/api/v1/nodes/{NODE}/proxy",
        f"{NAMESPACED}/configmaps/holdfast-controller",
        f"{LEASES}/{NODE}",
        "/api/v1/namespaces/default/pods/rank-0",
        "/apis/apps/v1/namespaces/holdfast/daemonsets/holdfast-agent",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/holdfast-agent-node",
    ],
)
def test_a_controller_cannot_change_what_is_not_its_own(controller: Api, path: str) -> None:
    with pytest.raises(Forbidden):
        controller.patch(path, {"metadata": {"labels": {"a": "b"}}})
