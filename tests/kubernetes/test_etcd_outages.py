"""A controller of a cluster whose etcd stops, has no space, is killed, and is slow."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from agent_lease import LEASES
from chronicle import a_chronicle
from controlled import installed  # noqa: F401 - a fixture
from gangs import Indexed
from job_laws import monitor
from machines import REPLACE_XID, Fleet, a_fleet, stays
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

from tests.engines.control_plane import ETCD
from tests.engines.matrix import Matrix
from tests.engines.outages import full_etcd, killed_etcd, slow_etcd, stopped
from tools.fault_matrix import OPERATORS

OUTAGE_S = 3.0
"""Of each, and of the time after them in which a law may be broken. The lease of the leader ends
after 1.5 s, and agents report every 0.1 s."""


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def test_outages_of_etcd_cause_no_repair_and_no_second_attempt_at_once(
    fleet: Fleet,
    cluster: Cluster,
    matrix: Matrix,
) -> None:
    with a_chronicle(cluster) as chronicle:
        fleet.start(*NODES)
        fleet.control(settings=SETTINGS)
        fleet.until_schedulable(*NODES)
        chronicle.follow(PODS, Indexed.collection)
        job = Indexed(cluster, fleet.api)
        job.submit()
        job.until_running(1)
        hung, leaves = job.nodes
        bad = [min({*NODES} - {*job.nodes}), leaves]

        all_break_in_turn(fleet, job, bad, hung)
        matrix.record("etcd", f"{OPERATORS}/Job", outcome_of(job))
        fleet.carries_out = True
        until_done(fleet, None, lambda: all(fleet.phase(one) is None for one in bad))
        until_done(fleet, None, lambda: all(one.ended_at for one in fleet.incidents))
        attempt = job.record["attempt"]
        cluster.nodes.finish(min(job.running), exit_code=3)
        until_done(fleet, None, runs(job, attempt + 1))
        for pod in job.running:
            cluster.nodes.finish(pod)
        until_done(fleet, None, lambda: "Complete" in job.conditions)

        assert {*bad}.isdisjoint(job.nodes)
        monitor(chronicle.changes, [cell_of(job)])
        only_bad_nodes_were_repaired(fleet, bad)


def all_break_in_turn(fleet: Fleet, job: Indexed, bad: list[str], hung: str) -> None:
    """Two nodes break in outages, and the job stops in others.

    The first order uses the budget for all that time, and one pod of the job does not end.
    """
    plane = fleet.cluster.plane
    fleet.carries_out = False
    other, leaves = bad
    with stopped(plane, ETCD):
        fleet.machines[other].log(REPLACE_XID)
        stays(lambda: not fleet.orders, OUTAGE_S)
    until_done(fleet, None, lambda: fleet.orders)
    fleet.cluster.nodes.hang(hung)
    with full_etcd(plane):
        fleet.machines[leaves].log(REPLACE_XID)
        stays(lambda: ordered(fleet) == {other}, OUTAGE_S)
    until_done(fleet, None, lambda: job.record["phase"] != "running")
    with killed_etcd(plane):
        stays(lambda: ordered(fleet) == {other}, OUTAGE_S)
    until_led(fleet)
    stays(lambda: ordered(fleet) == {other}, OUTAGE_S)
    with slow_etcd(plane):
        stays(lambda: ordered(fleet) == {other}, OUTAGE_S)
    fleet.cluster.nodes.resume(hung)
    until_done(fleet, None, runs(job, 2))
    assert ordered(fleet) == {other}


def until_led(fleet: Fleet) -> None:
    """Until a controller acts, which may be another one than before."""
    began = datetime.now(UTC)

    def is_so() -> bool:
        renewed = fleet.api.get(f"{LEASES}/holdfast-controller")["spec"]["renewTime"]
        return datetime.fromisoformat(renewed) > began

    until_done(fleet, None, is_so)


def ordered(fleet: Fleet) -> set[str]:
    return {order["node"] for order in fleet.orders}


def runs(job: Indexed, attempt: int) -> Callable[[], bool]:
    def is_so() -> bool:
        record = job.record
        return record["attempt"] >= attempt and record["phase"] == "running"

    return is_so
