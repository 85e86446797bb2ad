"""Jobs that lose nodes, with Kubeflow's training operator and a real controller."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from machines import REBOOT_XID, REPLACE_XID, Fleet, a_fleet
from real_cluster import Cluster, until
from training import Training

SETTINGS = """
[nodes]
drain_timeout = "20s"
max_unavailable = 2
"""
REPLACED = "NvidiaGpuXidErrorPendingReplacement"

pytestmark = pytest.mark.usefixtures("training_operator")


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


@pytest.fixture
def job(fleet: Fleet) -> Training:
    """A job of two ranks on two of three nodes, with its controller."""
    fleet.start("a", "b", "c")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b", "c")
    job = Training(fleet.cluster, fleet.api)
    job.submit()
    job.until_running(1)
    return job


@pytest.mark.parametrize("line", [REPLACE_XID, REBOOT_XID], ids=["replace", "reboot"])
def test_a_fault_restarts_the_whole_job_on_other_nodes(
    fleet: Fleet, job: Training, line: str
) -> None:
    bad = job.nodes[1]
    before = {pod["metadata"]["uid"] for pod in job.pods.values()}

    fleet.machines[bad].log(line)
    job.until_running(2)

    assert before.isdisjoint(pod["metadata"]["uid"] for pod in job.pods.values())
    assert bad not in job.nodes
    assert len(job.nodes) == 2
    assert (job.record["hardware_retries"], job.record["app_retries"]) == (1, 0)
    assert job.environment("llama-worker-0")["HOLDFAST_ATTEMPT"] == "2"
    incident = fleet.until_recovered(bad)
    (touch,) = incident.jobs
    assert (touch.job, touch.attempt) == ("pytorchjob/default/llama", 1)
    assert touch.resumed_at is not None
    until(lambda: "Running" in [reason for reason, _ in job.events])
    assert "NodeFault" in [reason for reason, _ in job.events]
