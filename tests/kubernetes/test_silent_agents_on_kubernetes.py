"""Agents that die or never start, on a real control plane with played kubelets."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from controlled import installed  # noqa: F401 - a fixture
from machines import REPLACE_XID, Fleet, a_fleet, stays
from real_cluster import Cluster, until

from holdfast.apps.main import run
from holdfast.model.names import Condition, HealthStatus, Reason

SETTINGS = """
[nodes]
heartbeat_timeout = "20s"
drain_timeout = "20s"
max_unavailable = 1
"""
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def condition(fleet: Fleet, name: str) -> dict[str, Any]:
    node = fleet.node(name) or {}
    found = node.get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == Condition.AGENT_SILENT), {})


def events(fleet: Fleet, node: str, reason: str) -> list[dict[str, Any]]:
    items = fleet.api.list("/api/v1/namespaces/default/events")
    return [
        one for one in items if (one["involvedObject"]["name"], one["reason"]) == (node, reason)
    ]


def place(fleet: Fleet, name: str, **spec: Any) -> str:
    """Create a pod; returns the node that it gets."""
    container = {"name": "c", "image": "none"}
    body = {
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 30, "containers": [container], **spec},
    }
    fleet.api.create(PODS, body)
    until(lambda: fleet.api.get(f"{PODS}/{name}")["spec"].get("nodeName"))
    return str(fleet.api.get(f"{PODS}/{name}")["spec"]["nodeName"])


def lose_power(fleet: Fleet, name: str) -> None:
    """Agent and kubelet end, and the node controller finds out."""
    fleet.machines[name].power_off()
    fleet.cluster.nodes.hang(name)
    ready = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    path = f"/api/v1/nodes/{name}/status"
    fleet.cluster.plane.request("PATCH", path, {"status": {"conditions": ready}})


def test_a_node_whose_agent_died_for_good_takes_no_new_pods_and_keeps_its_own(
    fleet: Fleet, capsys
) -> None:
    fleet.start("a", "b")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b")
    assert place(fleet, "before", nodeName="a") == "a"

    fleet.machines["a"].power_off()
    until(lambda: fleet.phase("a") == "quarantined" and fleet.is_marked("a"))

    assert fleet.health("a") == HealthStatus.UNSCHEDULABLE
    until(lambda: condition(fleet, "a").get("status") == "True")
    until(lambda: events(fleet, "a", Reason.AGENT_SILENT))
    assert {place(fleet, f"after-{number}") for number in range(3)} == {"b"}
    assert (
        run(["nodes", "describe", "a", "--kubeconfig", str(fleet.cluster.plane.kubeconfig())]) == 0
    )
    assert f"{Condition.AGENT_SILENT} ({Reason.AGENT_SILENT})" in capsys.readouterr().out
    stays(lambda: not fleet.orders and fleet.phase("a") == "quarantined", 2)
    assert fleet.api.get(f"{PODS}/before")["status"]["phase"] == "Running"

    fleet.start_agent("a")
    until(lambda: fleet.phase("a") == "schedulable" and not fleet.is_marked("a"))
    until(lambda: condition(fleet, "a").get("status") == "False")
    assert len(events(fleet, "a", Reason.AGENT_SILENT)) == 1
    assert fleet.phase("b") == "schedulable"


def test_a_replacement_whose_agent_never_starts_is_never_released(fleet: Fleet, capsys) -> None:
    fleet.start("a", "b")
    controller = fleet.control(settings=f'{SETTINGS}join_timeout = "5s"\n')
    fleet.until_schedulable("a", "b")
    fleet.starts_agents = False

    fleet.machines["a"].log(REPLACE_XID)
    until(lambda: fleet.phase("spare-1") is not None)
    fleet.carries_out = False
    until(lambda: fleet.phase("spare-1") == "replacing")

    assert f"{Reason.NODE_NEVER_JOINED}" in controller.log
    assert "spare-1 released" not in controller.log
    assert fleet.is_marked("spare-1")
    assert place(fleet, "pod") == "b"
    where = ["--kubeconfig", str(fleet.cluster.plane.kubeconfig())]
    assert run(["nodes", "list", "-o", "json", *where]) == 0
    listed = {node["name"]: node for node in json.loads(capsys.readouterr().out)}
    assert listed["spare-1"]["heartbeat_at"] is None
    assert listed["b"]["heartbeat_at"] is not None


def test_a_node_that_lost_power_is_ordered_away_with_its_pods_which_stay_until_it_is_gone(
    fleet: Fleet,
) -> None:
    fleet.start("a", "b")
    fleet.carries_out = False
    fleet.control(settings=SETTINGS.replace('drain_timeout = "20s"', 'drain_timeout = "10m"'))
    fleet.until_schedulable("a", "b")
    place(fleet, "work", nodeName="a")

    lose_power(fleet, "a")
    until(lambda: fleet.orders)
    until(lambda: fleet.phase("a") == "replacing")
    stays(lambda: fleet.api.get(f"{PODS}/work"), 2)

    fleet.carries_out = True
    incident = fleet.until_recovered("a")
    assert incident.reason == Reason.NODE_SILENT
    until(lambda: not is_there(fleet, "work"))


def is_there(fleet: Fleet, pod: str) -> bool:
    with suppress(Exception):
        return bool(fleet.api.get(f"{PODS}/{pod}"))
    return False
