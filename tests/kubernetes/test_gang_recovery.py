"""Jobs of other kinds than PyTorchJob that lose nodes, with a real controller."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from gangs import (
    SETTINGS,
    Gang,
    Indexed,
    Mpi,
    Set,
    exchanges_one_pod,
    resumes_elsewhere,
    submitted,
)
from machines import REPLACE_XID, Fleet, a_fleet, stays
from real_cluster import Cluster, until
from trainers import PREPARED, Train
from training import ON, Training

from holdfast.model.names import Labels
from tests.engines.matrix import Matrix


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def test_a_fault_restarts_the_whole_indexed_job_on_other_nodes(fleet: Fleet) -> None:
    job = submitted(fleet, Indexed)

    resumes_elsewhere(fleet, job)

    assert job.job["status"].get("failed", 0) == 0  # nothing of its backoffLimit is spent
    for pod in job.pods.values():
        assert pod["metadata"]["annotations"]["holdfast.dev/attempt"] == "2"


def test_a_fault_costs_one_pod_of_an_indexed_job_that_keeps_its_pods(
    fleet: Fleet, matrix: Matrix
) -> None:
    job = submitted(fleet, Indexed, keeps_pods=True)

    exchanges_one_pod(fleet, job, matrix)

    fleet.cluster.nodes.finish(next(iter(job.pods)), exit_code=3)
    job.until_running(3)  # a launcher that fails restarts the whole job
    assert job.record["exchanged"] == []


@pytest.mark.usefixtures("training_operator")
def test_a_fault_costs_one_pod_of_a_pytorch_job_that_keeps_its_pods(
    fleet: Fleet, matrix: Matrix
) -> None:
    exchanges_one_pod(fleet, submitted(fleet, Training, keeps_pods=True), matrix)


def test_an_indexed_job_whose_restarts_are_spent_has_failed_and_says_why(fleet: Fleet) -> None:
    job = submitted(fleet, Indexed, retries=1)
    for attempt in (1, 2):
        job.until_running(attempt)
        fleet.cluster.nodes.finish(next(iter(job.pods)), exit_code=3)

    until(lambda: "Failed" in job.conditions)
    until(lambda: job.phase == "failed")
    assert job.pods == {}
    (failed,) = [one for one in job.job["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith(
        "application retries exhausted (1 of 1); last failure: RankExited on"
    )
    assert job.record["attempts"][0]["failure"]["evidence"].endswith("exited with code 3")


def test_a_job_without_indexes_is_left_alone_and_reported(fleet: Fleet) -> None:
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
def test_a_fault_costs_one_pod_of_a_job_set_that_keeps_its_pods(
    fleet: Fleet, matrix: Matrix
) -> None:
    exchanges_one_pod(fleet, submitted(fleet, Set, keeps_pods=True), matrix)


@pytest.mark.usefixtures("job_sets")
def test_a_job_set_whose_restarts_are_spent_has_failed_and_says_why(fleet: Fleet) -> None:
    job = submitted(fleet, Set, retries=0)
    fleet.cluster.nodes.finish(min(job.pods), exit_code=3)

    until(lambda: "Failed" in job.conditions)
    until(lambda: job.phase == "failed")
    until(lambda: job.pods == {})
    (failed,) = [one for one in job.job["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith(
        "no application retries allowed; last failure: RankExited on"
    )
    assert job.job["status"]["terminalState"] == "Failed"


def test_a_fault_restarts_the_whole_mpi_job_on_other_nodes(mpi_fleet: Fleet) -> None:
    fleet = mpi_fleet
    job = submitted(fleet, Mpi, retries=1)

    resumes_elsewhere(fleet, job)

    assert job.environment("llama-worker-0")["HOLDFAST_ATTEMPT"] == "2"
    fleet.cluster.nodes.finish("llama-worker-1")
    until(lambda: job.pods["llama-worker-1"]["status"]["phase"] == "Succeeded")
    fleet.cluster.nodes.finish("llama-worker-0", exit_code=3)
    job.until_running(3)
    assert len(job.nodes) == 2
    (launcher,) = [name for name in job.pods if "launcher" in name]
    fleet.cluster.nodes.finish(launcher, exit_code=3)
    until(lambda: "Failed" in job.conditions)
    until(lambda: job.phase == "failed")
    assert job.pods == {}
    (failed,) = [one for one in job.job["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith(
        "application retries exhausted (1 of 1); last failure: RankExited on"
    )


def test_a_fault_costs_one_pod_of_an_mpi_job_that_keeps_its_pods(
    mpi_fleet: Fleet, matrix: Matrix
) -> None:
    exchanges_one_pod(mpi_fleet, submitted(mpi_fleet, Mpi, keeps_pods=True), matrix)


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


@pytest.mark.usefixtures("trainer")
def test_a_fault_restarts_the_whole_train_job_on_other_nodes(fleet: Fleet) -> None:
    job = submitted(fleet, Train)

    resumes_elsewhere(fleet, job)

    for pod in job.pods.values():
        assert pod["metadata"]["annotations"]["holdfast.dev/attempt"] == "2"


@pytest.mark.usefixtures("trainer")
def test_a_fault_costs_one_pod_of_a_train_job_that_keeps_its_pods(
    fleet: Fleet, matrix: Matrix
) -> None:
    exchanges_one_pod(fleet, submitted(fleet, Train, keeps_pods=True), matrix)


@pytest.mark.usefixtures("trainer")
def test_a_train_job_whose_restarts_are_spent_has_failed_and_says_why(fleet: Fleet) -> None:
    job = submitted(fleet, Train, retries=0, annotations=ON)
    until(lambda: any("on TrainJob llama" in text for _, text in job.events))  # of its JobSet
    fleet.cluster.nodes.finish(min(job.pods), exit_code=3)

    until(lambda: "Failed" in job.conditions)
    until(lambda: job.phase == "failed")
    until(lambda: job.pods == {})
    (failed,) = [one for one in job.job["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith(
        "no application retries allowed; last failure: RankExited on"
    )


@pytest.mark.usefixtures("trainer")
def test_what_prepares_a_train_job_runs_again_before_it_restarts(fleet: Fleet) -> None:
    fleet.start("a", "b", "c")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b", "c")
    job = Train(fleet.cluster, fleet.api)
    job.submit(runtimeRef={"name": PREPARED})

    prepared(fleet, job, attempt=1)
    fleet.cluster.nodes.finish(min(job.running), exit_code=3)
    until(lambda: job.phase != "running")
    prepared(fleet, job, attempt=2)

    assert job.record["attempts"][0]["failure"]["evidence"].endswith("exited with code 3")


def prepared(fleet: Fleet, job: Gang, attempt: int) -> None:
    """Its initializer runs alone and ends well, and then both nodes train."""
    found: list[str] = []

    def is_alone() -> bool:
        found[:] = job.running
        return ["initializer" in name for name in found] == [True]

    until(is_alone)
    fleet.cluster.nodes.finish(found[0])
    job.until_running(attempt)
    assert ["node" in name for name in job.running] == [True, True]


@pytest.mark.usefixtures("job_sets")
def test_a_job_set_of_which_a_job_has_ended_restarts_with_all_of_them(fleet: Fleet) -> None:
    job = submitted(fleet, Set)
    done, other = sorted(job.pods)
    fleet.cluster.nodes.finish(done)
    until(lambda: [one["succeeded"] for one in job.parts] == [1])

    fleet.cluster.nodes.finish(other, exit_code=3)
    job.until_running(2)

    assert len(job.running) == 2
    assert (job.record["hardware_retries"], job.record["app_retries"]) == (0, 1)


def test_an_index_that_has_ended_is_not_run_again_and_its_node_may_fail(fleet: Fleet) -> None:
    job = submitted(fleet, Indexed)
    done, other = sorted(job.pods)
    (left, node) = (job.pods[name]["spec"]["nodeName"] for name in (done, other))
    fleet.cluster.nodes.finish(done)
    until(lambda: job.job["status"].get("completedIndexes") == "0")

    fleet.machines[left].log(REPLACE_XID)
    fleet.until_recovered(left)
    assert (job.phase, job.record["attempt"]) == ("running", 1)
    assert other in job.pods

    fleet.machines[node].log(REPLACE_XID)
    job.until_running(2)
    (again,) = job.running
    assert job.pods[again]["spec"]["nodeName"] not in (left, node)
    fleet.cluster.nodes.finish(again)
    until(lambda: "Complete" in job.conditions)
    until(lambda: job.phase == "succeeded")
    assert job.record["hardware_retries"] == 1
