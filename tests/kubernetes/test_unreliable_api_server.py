"""A controller whose API server is slow, pauses, refuses, and loses requests and answers."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chronicle import a_chronicle
from controlled import installed  # noqa: F401 - a fixture
from gangs import Indexed
from job_laws import monitor
from machines import REPLACE_XID, Fleet, a_fleet
from real_cluster import Cluster, until
from training import PODS
from unreliable_proxy import UnreliableProxy, unreliable_proxy

from tests.engines.matrix import Matrix
from tools.fault_matrix import OPERATORS

SETTINGS = '[nodes]\nmax_unavailable = 1\nprovider_retry = "1s"\ndrain_timeout = "10s"\n'
NEVER = datetime.max.replace(tzinfo=UTC)
DISTURBED = 10
"""Requests that do not get through while a law may be broken: some seconds."""

NODES = ("a", "b", "c", "d")


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def until_done(fleet: Fleet, proxy: UnreliableProxy, condition: Callable[[], object]) -> None:
    """Wait until something holds, and start a controller again that has ended."""

    def is_so() -> object:
        if fleet.controllers[-1].process.poll() is not None:
            fleet.control(settings=SETTINGS, kubeconfig=proxy.kubeconfig)
        return condition()

    until(is_so)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_unreliable_api_server_causes_no_repair_and_no_second_attempt_at_once(
    fleet: Fleet, cluster: Cluster, tmp_path: Path, matrix: Matrix, seed: int
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

            until_done(fleet, proxy, runs)

        fleet.carries_out = False  # the first order uses the budget for a while
        [stays, leaves], other = job.nodes, min({*NODES} - {*job.nodes})
        bad = [other, leaves]
        fleet.machines[other].log(REPLACE_XID)
        until_done(fleet, proxy, lambda: fleet.orders)
        fleet.cluster.nodes.hang(stays)  # its pod does not end
        fleet.machines[leaves].log(REPLACE_XID)
        until_done(fleet, proxy, lambda: job.record["phase"] != "running")
        enough = proxy.disturbed + DISTURBED
        until_done(fleet, proxy, lambda: proxy.disturbed >= enough)
        fleet.cluster.nodes.resume(stays)
        until_attempt(2)
        assert {order["node"] for order in fleet.orders} == {other}
        fleet.carries_out = True
        matrix.record("unreliable-api", f"{OPERATORS}/Job", outcome_of(job))
        until_done(fleet, proxy, lambda: all(fleet.phase(one) is None for one in bad))
        until_done(fleet, proxy, lambda: all(one.ended_at for one in fleet.incidents))
        attempt = job.record["attempt"]
        fleet.cluster.nodes.finish(min(job.running), exit_code=3)
        until_attempt(attempt + 1)

        proxy.is_on = False
        for pod in job.running:
            fleet.cluster.nodes.finish(pod)
        until_done(fleet, proxy, lambda: "Complete" in job.conditions)

        assert {*bad}.isdisjoint(job.nodes)
        monitor(chronicle.changes, [cell_of(job)])
        only_bad_nodes_were_repaired(fleet, bad)


def cell_of(job: Indexed) -> Any:
    return SimpleNamespace(group=job.name, job=job)


def outcome_of(job: Indexed) -> dict[str, Any]:
    record = job.record
    return {
        "job": record["phase"],
        "attempt": record["attempt"],
        "hardware": record["hardware_retries"],
        "application": record["app_retries"],
        "causes": [one["failure"]["reason"] for one in record["attempts"]],
    }


def only_bad_nodes_were_repaired(fleet: Fleet, bad: list[str]) -> None:
    """Once each, and one after the other: the budget is one node."""
    orders = {order["token"]: order["node"] for order in fleet.orders}
    assert sorted(orders.values()) == sorted(bad)
    first, second = sorted(fleet.incidents, key=lambda one: one.ended_at or NEVER)
    assert [first.node, second.node] == [*orders.values()]
    assert first.ended_at is not None
    assert second.drained_at is not None
    assert first.ended_at <= second.drained_at
