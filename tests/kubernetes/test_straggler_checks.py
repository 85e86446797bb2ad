"""Nodes of stragglers on a real control plane: a real controller, and logs of a job's pods."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from machines import Fleet, a_fleet, stays
from real_cluster import Cluster, until
from training import ON, Training

from holdfast.model.names import LOSS_ACTION, Reason
from tests.engines.kubelet import PodServer

pytestmark = pytest.mark.usefixtures("training_operator")

TESTS = """
[nodes]
drain_timeout = "20s"
max_unavailable = 2
[jobs]
app_backoff = "0s"
straggler_action = "pair-test"
[kubernetes.check]
image = "holdfast"
"""


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def straggler(host: str) -> str:
    figures = "its own part of a step takes 1.31x the median of the other ranks"
    return (
        f"holdfast: StragglerFound: round 1: rank 1 on {host}-4711-0a1b2c is slow: {figures}; it "
        "waits 4% of the time, the others 24% (4 windows)"
    )


def test_the_node_is_checked_at_the_next_restart_and_the_attempt_is_not_interrupted(
    fleet: Fleet,
) -> None:
    names = ("a", "b", "c")
    fleet.start(*names)
    with PodServer(fleet.cluster.plane) as kubelet:
        kubelet.serve(*names)
        fleet.control(settings=TESTS)
        fleet.until_schedulable(*names)
        job = Training(fleet.cluster, fleet.api, annotations={**ON, LOSS_ACTION: "ask"})
        job.submit()
        job.until_running(1)
        slow = job.nodes[1]
        [other] = {*names} - {*job.nodes}

        kubelet.write_lines("llama-master-0", straggler(other), straggler("somewhere"))
        until(lambda: [one for one in job.events if one[0] == "StragglerFound"])
        stays(lambda: all(fleet.phase(name) == "schedulable" for name in names), 2)

        kubelet.write_lines("llama-master-0", straggler("llama-worker-0"))
        until(lambda: fleet.phase(slow) == "quarantined")
        stays(lambda: fleet.phase(slow) == "quarantined", 2)
        assert (job.phase, job.record["attempt"], len(job.nodes)) == ("running", 1, 2)

        job.container_fails("llama-master-0", 1)
        job.until_running(2)
        assert slow not in job.nodes
        until(lambda: fleet.phase(slow) == "checking")
        reported = fleet.cluster.kubectl("events", "--for", f"node/{slow}")
        assert f"{slow} is suspect: pytorchjob/default/llama attempt 1 reports: round 1" in reported
        [incident] = [one for one in fleet.incidents if one.node == slow]
        assert incident.reason == Reason.STRAGGLER_FOUND
        assert fleet.orders == []
