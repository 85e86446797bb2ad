"""Jobs and clusters of Ray that lose nodes, with the real operator.

Each cluster has a name of its own, as the operator takes one that follows another for the same.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from gangs import resumes_elsewhere, submitted
from machines import Fleet, a_fleet, stays
from rays import Dashboard, RayCluster, RayJob, run_ray
from real_cluster import Cluster, until

from tests.engines.control_plane import Built, ControlPlane
from tests.engines.job_operators import RAY_OPERATOR


@pytest.fixture(scope="module")
def dashboard(
    built: Built, control_plane: ControlPlane, binaries: Mapping[str, Path]
) -> Iterator[Dashboard]:
    """The KubeRay operator runs meanwhile."""
    with run_ray(control_plane, {**binaries, **built(RAY_OPERATOR)}) as dashboard:
        yield dashboard


@pytest.fixture
def fleet(
    dashboard: Dashboard,
    installed,  # noqa: F811
    cluster: Cluster,
    tmp_path: Path,
) -> Iterator[Fleet]:
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def test_a_fault_restarts_a_ray_job_on_another_cluster(fleet: Fleet, dashboard: Dashboard) -> None:
    job = submitted(fleet, RayJob)
    until(lambda: job.state == "Running")
    first = job.submission

    resumes_elsewhere(fleet, job)

    for pod in job.pods:
        assert job.environment(pod)["HOLDFAST_ATTEMPT"] == "2"
    assert "InvalidInput" not in fleet.cluster.kubectl("get", "events")  # nor on its cluster
    until(lambda: job.submission in dashboard.submitted - {first})
    dashboard.ended[job.submission] = "SUCCEEDED"
    until(lambda: job.state == "Complete")
    until(lambda: job.phase == "succeeded")


def test_a_ray_job_whose_restarts_are_spent_has_failed_and_says_why(fleet: Fleet) -> None:
    job = submitted(fleet, RayJob, retries=0)
    fleet.cluster.nodes.finish(max(job.pods), exit_code=3)

    until(lambda: job.state == "Failed")
    until(lambda: job.phase == "failed")
    until(lambda: job.pods == {})
    assert job.job["status"]["message"].startswith(
        "no application retries allowed; last failure: Rank"
    )


def test_a_ray_job_that_its_operator_starts_anew_is_in_another_attempt(
    fleet: Fleet, dashboard: Dashboard
) -> None:
    job = submitted(fleet, RayJob, backoffLimit=1)
    job.until_running(1)
    until(lambda: job.submission in dashboard.submitted)  # its state is Running before that
    before, first = job.pods, job.submission

    time.sleep(1)  # the start times that its operator writes have no fractions of a second
    dashboard.ended[first] = "FAILED"
    job.until_running(2)
    assert not before.keys() & job.pods.keys()
    assert (job.record["hardware_retries"], job.record["app_retries"]) == (0, 0)
    until(lambda: job.submission in dashboard.submitted - {first})

    dashboard.ended[job.submission] = "FAILED"
    until(lambda: job.phase == "failed")
    assert job.job["status"]["failed"] == 2


def test_a_fault_restarts_a_ray_cluster_as_a_whole(fleet: Fleet) -> None:
    job = submitted(fleet, RayCluster, name="moves")

    resumes_elsewhere(fleet, job)

    for pod in job.pods:
        assert job.environment(pod)["HOLDFAST_ATTEMPT"] == "2"


def test_a_ray_cluster_whose_restarts_are_spent_stays_down_and_says_why(fleet: Fleet) -> None:
    job = submitted(fleet, RayCluster, retries=0, name="spent")
    fleet.cluster.nodes.finish(max(job.pods), exit_code=3)

    until(lambda: "Failed" in job.conditions)
    until(lambda: job.phase == "failed")
    until(lambda: job.pods == {})
    stays(lambda: job.is_suspended and "Failed" in job.conditions, 0.5)
    (failed,) = [one for one in job.job["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith(
        "no application retries allowed; last failure: RankExited on"
    )
