"""``holdfast launch`` in pods: ranks restart in them, and a bad node costs one pod."""

from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from effort import variants
from gangs import SETTINGS, Gang
from launched_jobs import LaunchedJob, LaunchedMpi, LaunchedSet, LaunchedTrain, launching
from machines import REPLACE_XID, Fleet, a_fleet
from real_cluster import Cluster, until
from real_ranks import real_ranks
from training import ON

from holdfast.model.names import KEEP_PODS

KEPT = {**ON, KEEP_PODS: "true"}
"""Annotations of a job that Holdfast resumes, with its pods."""


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


@dataclass
class Launch:
    """A job at work, with a rank on each of two nodes."""

    fleet: Fleet
    job: Gang
    folder: Path

    def until_round(self, number: int, attempt: int = 1) -> None:
        until(lambda: len(list(self.folder.glob(f"{attempt}.{number}.*"))) == 2)

    @property
    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.job.pods.values()}

    @property
    def ranks(self) -> list[str]:
        """Names of the pods that have a rank, in the order of their ranks."""
        return [name for name in sorted(self.job.pods) if "-launcher-" not in name]

    def restart_in_place(self) -> None:
        """A rank of the first round fails: all ranks restart, in the same pods."""
        self.until_round(1)
        first = self.uids
        (self.folder / "exit.1.1.1").touch()
        self.until_round(2)
        assert self.uids == first

    def condemn(self, pod: str) -> Set[str]:
        """Break the node of a pod; returns the pods that are elsewhere."""
        bad = self.job.pods[pod]["spec"]["nodeName"]
        found = self.job.pods.values()
        elsewhere = {one["metadata"]["uid"] for one in found if one["spec"]["nodeName"] != bad}
        self.fleet.machines[bad].log(REPLACE_XID)
        return elsewhere

    def finish(self) -> None:
        """The job completes, and never had ranks of two rounds or attempts at once."""
        (self.folder / "finish").touch()
        until(lambda: {"Complete", "Completed", "Succeeded"} & {*self.job.conditions})
        assert not (self.folder / "overlap").exists(), (self.folder / "overlap").read_text("utf-8")


def begun(
    fleet: Fleet, kind: type[Gang], folder: Path, annotations: dict[str, str], *more: str
) -> Launch:
    """A job that begins on a fleet of three nodes, and ``more``."""
    job = kind(fleet.cluster, fleet.api, annotations=annotations)
    launching(job, folder)
    fleet.start("a", "b", "c", *more)
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b", "c", *more)
    job.submit()
    return Launch(fleet, job, folder)


def exchange_one_pod(launch: Launch, bad_rank: int) -> None:
    """The ranks restart in their pods, and on another pod where the node of one is bad."""
    launch.restart_in_place()
    first, bad = launch.uids, launch.ranks[bad_rank]
    node = launch.job.pods[bad]["spec"]["nodeName"]
    stay = launch.condemn(bad)
    launch.until_round(3)
    assert first & launch.uids == stay
    assert len(stay) == len(first) - 1
    assert node not in launch.job.nodes
    launch.finish()


@pytest.mark.usefixtures("trainer")
@pytest.mark.parametrize(
    ("kind", "annotations", "bad_rank"),
    variants(
        [
            pytest.param(LaunchedJob, {}, 1, id="drained"),
            pytest.param(LaunchedJob, KEPT, 1, id="resumed"),
            pytest.param(LaunchedJob, KEPT, 0, id="coordinator"),
            pytest.param(LaunchedSet, KEPT, 0, id="coordinator-of-a-job-set"),
            pytest.param(LaunchedSet, KEPT, 1, id="job-set"),
            pytest.param(LaunchedTrain, KEPT, 1, id="train-job"),
            pytest.param(LaunchedTrain, KEPT, 0, id="coordinator-of-a-train-job"),
        ]
    ),
)
def test_a_rank_restarts_in_its_pod_and_a_bad_node_costs_one_pod(
    fleet: Fleet,
    tmp_path: Path,
    kind: type[LaunchedJob | LaunchedSet | LaunchedTrain],
    annotations: dict[str, str],
    bad_rank: int,
) -> None:
    with real_ranks(fleet, tmp_path):
        exchange_one_pod(begun(fleet, kind, tmp_path, annotations), bad_rank)


@pytest.mark.parametrize("bad_rank", [1, 0], ids=["worker", "coordinator"])
def test_a_bad_node_costs_one_worker_of_an_mpi_job(
    mpi_fleet: Fleet, tmp_path: Path, bad_rank: int
) -> None:
    with real_ranks(mpi_fleet, tmp_path):
        exchange_one_pod(begun(mpi_fleet, LaunchedMpi, tmp_path, KEPT, "d"), bad_rank)


def test_a_bad_node_of_the_launcher_of_an_mpi_job_stops_no_rank(
    mpi_fleet: Fleet, tmp_path: Path
) -> None:
    with real_ranks(mpi_fleet, tmp_path):
        launch = begun(mpi_fleet, LaunchedMpi, tmp_path, KEPT, "d")
        launch.restart_in_place()
        first = launch.uids
        (launcher,) = {*launch.job.pods} - {*launch.ranks}
        stay = launch.condemn(launcher)
        until(lambda: len(launch.uids) == 3 and launch.uids & first == stay)
        launch.job.until_running(2)
        assert list(tmp_path.glob("*.3.*")) == []
        launch.finish()


def test_an_mpi_job_restarts_with_all_pods_where_they_are_not_kept(
    mpi_fleet: Fleet, tmp_path: Path
) -> None:
    with real_ranks(mpi_fleet, tmp_path):
        launch = begun(mpi_fleet, LaunchedMpi, tmp_path, ON, "d")
        launch.restart_in_place()
        first = launch.uids
        launch.condemn(launch.ranks[1])
        launch.until_round(1, attempt=2)
        assert first.isdisjoint(launch.uids)
        launch.finish()


def test_an_mpi_job_whose_launcher_ends_with_its_worker_restarts_with_all_pods(
    mpi_fleet: Fleet, tmp_path: Path
) -> None:
    with real_ranks(mpi_fleet, tmp_path):
        launch = begun(mpi_fleet, LaunchedMpi, tmp_path, KEPT, "d")
        launch.until_round(1)
        first = launch.uids
        launch.condemn(launch.ranks[1])
        until(lambda: first - launch.uids)
        (tmp_path / "lost").touch()
        until(lambda: first.isdisjoint(launch.uids) and len(launch.uids) == 3)
        until(lambda: any(tmp_path.glob("[2-9].1.1")))
        launch.finish()
