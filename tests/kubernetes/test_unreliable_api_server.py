"""A controller whose API server is slow, pauses, refuses, and loses requests and answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chronicle import a_chronicle
from controlled import installed  # noqa: F401 - a fixture
from effort import variants
from gangs import Indexed
from job_laws import monitor
from machines import REPLACE_XID, Fleet, a_fleet
from outage_laws import (
    NODES,
    SETTINGS,
    cell_of,
    only_bad_nodes_were_repaired,
    outcome_of,
    until_done,
)
from real_cluster import Cluster
from training import PODS
from unreliable_proxy import unreliable_proxy

from tests.engines.matrix import Matrix
from tools.fault_matrix import OPERATORS

DISTURBED = 10
"""Requests that do not get through while a law may be broken: some seconds."""


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


@pytest.mark.parametrize("seed", variants([1, 2, 3], each=3))
def test_an_unreliable_api_server_causes_no_repair_and_no_second_attempt_at_once(
    fleet: Fleet,
    cluster: Cluster,
    tmp_path: Path,
    matrix: Matrix,
    seed: int,
) -> None:
    with (
        unreliable_proxy(cluster.plane, tmp_path, seed) as proxy,
        a_chronicle(cluster) as chronicle,
    ):
        fleet.start(*NODES)
        fleet.control(settings=SETTINGS, kubeconfig=proxy.kubeconfig)
        fleet.until_schedulable(*NODES)
        chronicle.follow(PODS, Indexed.collection)
        job = Indexed(cluster, fleet.api)
        job.submit()
        job.until_running(1)
        proxy.is_on = True

        def until_attempt(number: int) -> None:
            def runs() -> bool:
                record = job.record
                return record["attempt"] >= number and record["phase"] == "running"

            until_done(fleet, proxy.kubeconfig, runs)

        fleet.carries_out = False  # the first order uses the budget for a while
        [stays, leaves], other = job.nodes, min({*NODES} - {*job.nodes})
        bad = [other, leaves]
        fleet.machines[other].log(REPLACE_XID)
        until_done(fleet, proxy.kubeconfig, lambda: fleet.orders)
        fleet.cluster.nodes.hang(stays)  # its pod does not end
        fleet.machines[leaves].log(REPLACE_XID)
        until_done(fleet, proxy.kubeconfig, lambda: job.record["phase"] != "running")
        enough = proxy.disturbed + DISTURBED
        until_done(fleet, proxy.kubeconfig, lambda: proxy.disturbed >= enough)
        fleet.cluster.nodes.resume(stays)
        until_attempt(2)
        assert {order["node"] for order in fleet.orders} == {other}
        fleet.carries_out = True
        matrix.record("unreliable-api", f"{OPERATORS}/Job", outcome_of(job))
        until_done(fleet, proxy.kubeconfig, lambda: all(fleet.phase(one) is None for one in bad))
        until_done(fleet, proxy.kubeconfig, lambda: all(one.ended_at for one in fleet.incidents))
        attempt = job.record["attempt"]
        fleet.cluster.nodes.finish(min(job.running), exit_code=3)
        until_attempt(attempt + 1)

        proxy.is_on = False
        for pod in job.running:
            fleet.cluster.nodes.finish(pod)
        until_done(fleet, proxy.kubeconfig, lambda: "Complete" in job.conditions)

        assert {*bad}.isdisjoint(job.nodes)
        monitor(chronicle.changes, [cell_of(job)])
        only_bad_nodes_were_repaired(fleet, bad)
