"""Agents and controllers at work as processes, with the rights that the chart gives them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clean_slate import CleanSlate
from controlled import NAMESPACE
from machines import REBOOT_XID, REPLACE_XID, Controller, Fleet, a_fleet
from real_cluster import Cluster, connected, until, until_defined

from holdfast.model.names import HealthStatus
from tests.engines.control_plane import ControlPlane

DEPLOY = Path(__file__).parents[2] / "deploy"
CRDS = DEPLOY / "helm/holdfast/crds"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
AGENTS = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/component=agent"
SETTINGS = """
[nodes]
drain_timeout = "3s"
max_unavailable = 2
"""


@pytest.fixture(scope="module")
def plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    """With the plain manifests; the controllers are started by hand."""
    with ControlPlane(binaries) as plane, connected(plane, binaries) as cluster:
        cluster.kubectl("apply", "--server-side", "--filename", str(CRDS))
        until_defined(plane, {"incidents.holdfast.dev"})
        cluster.kubectl("apply", "--filename", str(DEPLOY / "kubernetes/holdfast.yaml"))
        cluster.kubectl("delete", "deployment", "holdfast-controller", "--namespace", NAMESPACE)
        yield plane


@pytest.fixture
def fleet(plane: ControlPlane, binaries: dict[str, Path], tmp_path: Path) -> Iterator[Fleet]:
    slate = CleanSlate(plane)
    with (
        connected(plane, binaries) as cluster,
        a_fleet(cluster, tmp_path, lambda node: token_of_agent(plane, node)) as fleet,
    ):
        yield fleet
    slate.restore()


def token_of_agent(plane: ControlPlane, node: str) -> str:
    """That of the agent's pod on a node, which the admission policies look at."""

    def pods() -> list[str]:
        found = plane.request("GET", AGENTS)["items"]
        return [pod["metadata"]["name"] for pod in found if pod["spec"].get("nodeName") == node]

    until(pods)
    return plane.service_account_token(NAMESPACE, "holdfast-agent", pod=pods()[0])


def control(fleet: Fleet) -> Controller:
    plane = fleet.cluster.plane
    token = plane.service_account_token(NAMESPACE, "holdfast-controller")
    return fleet.control(settings=SETTINGS, kubeconfig=plane.kubeconfig("controller", token))


def a_pod(cluster: Cluster, node: str) -> None:
    container = {"name": "train", "image": "train"}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    pod = {"metadata": {"name": "train"}, "spec": spec}
    cluster.plane.request("POST", "/api/v1/namespaces/default/pods", pod)


def test_processes_replace_and_reboot_nodes_with_these_rights_alone(fleet: Fleet) -> None:
    fleet.start("a", "b")
    a_pod(fleet.cluster, "a")
    controller = control(fleet)
    fleet.until_schedulable("a", "b")

    fleet.machines["a"].log(REPLACE_XID)
    assert fleet.until_recovered("a").successor == "spare-1"
    fleet.machines["b"].log(REBOOT_XID)
    fleet.until_recovered("b")

    until(lambda: fleet.health("b") == HealthStatus.SCHEDULABLE)
    until(lambda: "NodeReleased" in fleet.cluster.kubectl("get", "events"))
    assert "may not" not in controller.errors + controller.log
    for machine in fleet.machines.values():
        assert (machine.folder / "stderr").read_text(encoding="utf-8") == ""


@dataclass(frozen=True)
class Right:
    """One that is taken away."""

    verb: str
    resource: str
    group: str = ""
    roles: str = "clusterroles"

    @property
    def rule(self) -> str:
        rule = {"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb]}
        return f"with the rule {json.dumps(rule)}"


IN_NAMESPACE = f"namespaces/{NAMESPACE}/roles"
RIGHTS = [
    Right("watch", "nodes"),
    Right("patch", "nodes"),
    Right("list", "pods"),
    Right("create", "pods/eviction"),
    Right("create", "events"),
    Right("create", "incidents", "holdfast.dev"),
    Right("create", "configmaps", "", IN_NAMESPACE),
    Right("list", "configmaps", "", IN_NAMESPACE),
    Right("create", "leases", "coordination.k8s.io", IN_NAMESPACE),
]


@contextmanager
def without(plane: ControlPlane, right: Right) -> Iterator[None]:
    roles = {
        f"{RBAC}/{right.roles}/{role['metadata']['name']}": role["rules"]
        for role in plane.request("GET", f"{RBAC}/{right.roles}")["items"]
        if role["metadata"]["name"].startswith("holdfast-controller-")
    }
    for path, rules in roles.items():
        less = [_less(rule, right) for rule in rules]
        if less != rules:
            plane.request("PATCH", path, {"rules": less})
    try:
        yield
    finally:
        for path, rules in roles.items():
            plane.request("PATCH", path, {"rules": rules})


def _less(rule: dict[str, Any], right: Right) -> dict[str, Any]:
    if right.resource not in rule["resources"]:
        return rule
    verbs = [verb for verb in rule["verbs"] if verb != right.verb]
    return {**rule, "verbs": verbs or ["deletecollection"]}  # one must be left


@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: f"{right.verb} {right.resource}")
def test_a_missing_right_is_named_and_the_work_goes_on_once_it_is_given(
    fleet: Fleet, right: Right
) -> None:
    fleet.start("a", "b")
    a_pod(fleet.cluster, "a")
    fleet.machines["a"].log(REPLACE_XID)
    with without(fleet.cluster.plane, right):
        controller = control(fleet)
        until(lambda: right.rule in controller.errors + controller.log)
    fleet.until_recovered("a")

    assert controller.process.poll() is None


def test_a_node_object_that_outlives_its_machine_needs_a_right_to_be_removed(fleet: Fleet) -> None:
    right = Right("delete", "nodes")
    fleet.carries_out = False
    fleet.start("a", "b")
    fleet.machines["a"].log(REPLACE_XID)
    with without(fleet.cluster.plane, right):
        controller = control(fleet)
        until(lambda: fleet.orders)
        fleet.join("spare", "p5")
        until(lambda: right.rule in controller.log)

    assert fleet.until_recovered("a").successor == "spare"
