"""Jobs of other kinds than PyTorchJob that lose nodes, with a real controller."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from conftest import built
from controlled import api_of, install, installed, is_served  # noqa: F401 - a fixture
from gangs import Gang, Indexed, Mpi, Set
from job_sets import run_jobset
from machines import REPLACE_XID, Fleet, a_fleet, stays
from real_cluster import Cluster, connected, until

from holdfast.model.names import APP_MAX_RETRY_COUNT, Labels
from holdfast.testing.control_plane import ControlPlane
from tools.control_plane import module_files

SETTINGS = """
[nodes]
drain_timeout = "20s"
max_unavailable = 2
"""


@pytest.fixture(scope="session")
def job_sets(
    request: pytest.FixtureRequest, control_plane: ControlPlane, binaries: Mapping[str, Path]
) -> None:
    """The JobSet controller runs from now on."""
    run_jobset(control_plane, built(request, "jobset")["jobset"], binaries)


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def submitted(fleet: Fleet, kind: type[Gang], retries: int = 2) -> Gang:
    """A job of two ranks on two of three nodes, with its controller."""
    fleet.start("a", "b", "c")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b", "c")
    job = kind(fleet.cluster, fleet.api)
    job.annotations[APP_MAX_RETRY_COUNT] = str(retries)
    job.submit()
    job.until_running(1)
    return job


def resumes_elsewhere(fleet: Fleet, job: Gang) -> None:
    """A node of the job is condemned, and the job goes on without it."""
    bad = job.nodes[1]
    before = {pod["metadata"]["uid"] for pod in job.pods.values()}

    fleet.machines[bad].log(REPLACE_XID)
    job.until_running(2)

    assert before.isdisjoint(pod["metadata"]["uid"] for pod in job.pods.values())
    assert bad not in job.nodes
    assert len(job.nodes) == 2
    assert (job.record["hardware_retries"], job.record["app_retries"]) == (1, 0)
    (touch,) = fleet.until_recovered(bad).jobs
    assert (touch.job, touch.attempt) == (f"{job.kind.lower()}/default/llama", 1)
    assert touch.resumed_at is not None


def test_a_fault_restarts_the_whole_indexed_job_on_other_nodes(fleet: Fleet) -> None:
    job = submitted(fleet, Indexed)

    resumes_elsewhere(fleet, job)

    assert job.job["status"].get("failed", 0) == 0  # nothing of its backoffLimit is spent
    for pod in job.pods.values():
        assert pod["metadata"]["annotations"]["holdfast.dev/attempt"] == "2"


def test_an_indexed_job_whose_restarts_are_spent_has_failed_and_says_why(fleet: Fleet) -> None:
    job = submitted(fleet, Indexed, retries=1)
    for attempt in (1, 2):
        job.until_running(attempt)
        fleet.cluster.nodes.finish(next(iter(job.pods)), exit_code=3)

    until(lambda: "Failed" in job.conditions)
    until(lambda: job.phase == "failed")
    assert job.pods == {}
    (failed,) = [one for one in job.job["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith("1 application retries are spent; last: RankExited on")
    assert job.record["attempts"][0]["failure"]["evidence"].endswith("with exit code 3")


def test_a_job_without_indexes_is_left_alone_and_told_so(fleet: Fleet) -> None:
    job = Indexed(fleet.cluster, fleet.api)
    fleet.start("a")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a")

    job.submit(completionMode="NonIndexed")

    until(lambda: job.events)
    ((reason, message),) = job.events
    assert reason == "InvalidInput"
    assert Labels().enable_job_auto_resume in message
    assert "completionMode Indexed" in message
    stays(lambda: job.record == {}, 0.5)


@pytest.mark.usefixtures("job_sets")
def test_a_fault_restarts_the_whole_job_set_on_other_nodes(fleet: Fleet) -> None:
    job = submitted(fleet, Set)

    resumes_elsewhere(fleet, job)

    for pod in job.pods.values():
        assert pod["metadata"]["annotations"]["holdfast.dev/attempt"] == "2"


@pytest.mark.usefixtures("job_sets")
def test_a_job_set_whose_restarts_are_spent_has_failed_and_says_why(fleet: Fleet) -> None:
    job = submitted(fleet, Set, retries=0)
    fleet.cluster.nodes.finish(min(job.pods), exit_code=3)

    until(lambda: "Failed" in job.conditions)
    until(lambda: job.phase == "failed")
    until(lambda: job.pods == {})
    (failed,) = [one for one in job.job["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith("0 application retries are spent; last: RankExited on")
    assert job.job["status"]["terminalState"] == "Failed"


@pytest.fixture
def mpi_fleet(
    request: pytest.FixtureRequest, binaries: Mapping[str, Path], tmp_path: Path
) -> Iterator[Fleet]:
    """On a control plane of its own, as the training operator has another ``mpijobs``."""
    name = "mpi-operator"
    operator = built(request, name)[name]
    files = module_files(name, "github.com/kubeflow/mpi-operator")
    with ControlPlane(binaries) as plane, connected(plane, binaries) as cluster:
        crd = str(files / "manifests/base/kubeflow.org_mpijobs.yaml")
        cluster.kubectl("create", "--filename", crd)
        with closing(api_of(cluster)) as api:
            until(lambda: is_served(api, Mpi.collection))
        plane.run(name, operator, "--lock-namespace=default")
        install(cluster)
        with a_fleet(cluster, tmp_path) as fleet:
            yield fleet


def test_a_fault_restarts_the_whole_mpi_job_on_other_nodes(mpi_fleet: Fleet) -> None:
    job = submitted(mpi_fleet, Mpi, retries=0)

    resumes_elsewhere(mpi_fleet, job)

    assert job.environment("llama-worker-0")["HOLDFAST_ATTEMPT"] == "2"
    (launcher,) = [name for name in job.pods if "launcher" in name]
    mpi_fleet.cluster.nodes.finish(launcher, exit_code=3)
    until(lambda: "Failed" in job.conditions)
    until(lambda: job.phase == "failed")
    assert job.pods == {}
    (failed,) = [one for one in job.job["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith("0 application retries are spent; last: RankExited on")


def test_an_mpi_job_stays_down_while_its_replacement_is_prepared(mpi_fleet: Fleet) -> None:
    fleet = mpi_fleet
    fleet.carries_out = False
    fleet.start("a", "b")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b")
    job = Mpi(fleet.cluster, fleet.api)
    job.submit()
    job.until_running(1)

    fleet.machines["b"].log(REPLACE_XID)
    until(lambda: job.phase == "waiting" and fleet.orders)
    stays(lambda: job.is_suspended and job.pods == {}, 1)

    fleet.carries_out = True
    job.until_running(2)
    assert sorted(job.nodes) == ["a", "spare-1"]
