"""Tests between nodes on a real control plane: the controller's Jobs, and in them the real command,
on nodes whose network is real, with one wire that is slow."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controlled import installed  # noqa: F401 - a fixture
from light_fleet import LightFleet
from node_network import Kubelets, Network, set_addresses
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.checks.check_jobs import PairIds, pair_objects
from holdfast.adapters.kubernetes.settings import CheckSettings
from holdfast.model.deep_checks import TOKEN_VARIABLE
from holdfast.model.names import RECORD, HealthStatus, Labels, Reason
from tests.engines.host_tools import require_tool

DEEP = Labels().deep_health_check_status
NODES = ("a", "b", "c", "d")


@pytest.fixture
def network() -> Iterator[Network]:
    for tool in ("ip", "tc"):
        require_tool(tool)
    network = Network(NODES)
    try:
        try:
            network.build()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespace can be made here: {error.stderr!r}")
        yield network
    finally:
        network.remove()


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[LightFleet]:  # noqa: F811
    fleet = LightFleet(cluster, tmp_path)
    fleet.owner.start()
    try:
        yield fleet
    finally:
        fleet.close()
        fleet.tell()


@pytest.fixture
def kubelets(fleet: LightFleet, network: Network, tmp_path: Path) -> Iterator[Kubelets]:
    kubelets = Kubelets(fleet, network, tmp_path)
    yield kubelets
    kubelets.close()


def settings(folder: Path, more: str = "") -> str:
    config = folder / "check.toml"
    config.write_text(
        f'disk = "{folder}"\npair_time = "100ms"\n'
        "[thresholds.default]\npair_tcp_mb_per_s = 4\npair_tcp_us = 0\n",
        encoding="utf-8",
    )
    alone = ["holdfast", "check", "node", "--only", "nvlink", "--config", str(config)]
    pair = [*CheckSettings().pair_command[:-1], "20s", "--only", "tcp", "--config", str(config)]
    return f"""
    [nodes]
    deep_check_on_start = true
    deep_check_pairs = true
    max_unavailable = 4
    {more}
    [kubernetes.check]
    image = "holdfast"
    command = {json.dumps(alone)}
    pair_command = {json.dumps(pair)}
    """


def record(fleet: LightFleet, node: str) -> dict[str, Any]:
    found = fleet.node(node)
    annotations = {} if found is None else found["metadata"].get("annotations") or {}
    return json.loads(annotations.get(RECORD, "{}"))


def made_so_far(fleet: LightFleet) -> int:
    pairings = [record(fleet, node).get("pairing") or {} for node in NODES]
    return sum(len(pairing.get("tests", ())) for pairing in pairings)


def test_a_node_behind_a_slow_wire_is_found_by_tests_with_others_whoever_controls(
    fleet: LightFleet, network: Network, kubelets: Kubelets, tmp_path: Path
) -> None:
    network.slow("d", 16)  # 2 MB/s
    fleet.held.add("p5")
    fleet.start_groups({"p5": NODES})
    set_addresses(fleet, network)
    first = fleet.control(settings=settings(tmp_path))
    for count in (2, 4, 8):  # each within a minute
        until(lambda count=count: made_so_far(fleet) >= count)
    assert all(fleet.is_marked(node) for node in NODES)
    first.kill()
    fleet.control(settings=settings(tmp_path, 'deep_check_timeout = "1s"'))

    until(lambda: fleet.orders)
    until(lambda: all(fleet.health(node) == HealthStatus.SCHEDULABLE for node in "abc"))

    (incident,) = fleet.incidents
    assert (incident.node, incident.reason) == ("d", Reason.PAIR_FAILED)
    assert "pair_tcp_mb_per_s is" in incident.message
    assert [order["node"] for order in fleet.orders] == ["d"]
    assert fleet.node("d")["metadata"]["labels"][DEEP] == "Failed"
    for node in "abc":
        (check,) = record(fleet, node)["checks"]
        assert check["passed"]
        assert check["bounds"]["pair_tcp_mb_per_s"] == 4
        assert check["measured"]["pair_tcp_mb_per_s"] > 4
        assert set(check["partners"]) <= set(NODES) - {node}
    ran = [job for _, job in kubelets.ran]
    assert len(ran) == len(set(ran))


def test_the_jobs_of_a_test_share_their_token_and_the_network_of_their_nodes() -> None:
    ids = PairIds("n1", "n2", "t")
    check = CheckSettings(image="i", resources={"nvidia.com/gpu": "8"})

    listens, measures = pair_objects(ids, "10.0.0.2", "secret", check)

    assert [job["metadata"]["name"] for job in (listens, measures)] == [ids.listens, ids.measures]
    pods = [job["spec"]["template"]["spec"] for job in (listens, measures)]
    assert [pod["nodeName"] for pod in pods] == ["n2", "n1"]
    assert all(pod["hostNetwork"] for pod in pods)
    given = [{one["name"]: one["value"] for one in pod["containers"][0]["env"]} for pod in pods]
    assert [one["JOB_COMPLETION_INDEX"] for one in given] == ["0", "1"]
    assert {one[TOKEN_VARIABLE] for one in given} == {"secret"}
    assert {one["HOLDFAST_CHECK_PEER"] for one in given} == {"10.0.0.2"}
