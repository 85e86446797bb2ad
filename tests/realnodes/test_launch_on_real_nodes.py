"""Jobs of real operators with launchers in real pods: ranks restart there, or on a hot spare."""

import time
from collections.abc import Callable, Iterator

import pytest
from jobs_with_launchers import LaunchedJob, LaunchedJobSet, LaunchedPyTorchJob, LaunchedTrainJob
from site_of_nodes import REPLACE_XID, XID, Site

from tests.engines.matrix import Matrix
from tools.fault_matrix import NODES

REBOOT_WHEN_IDLE_XID = XID.format(63)


@pytest.fixture
def job(site: Site, training_operator: None) -> Iterator[LaunchedPyTorchJob]:
    """A job that is submitted."""
    probe = LaunchedPyTorchJob(site, "probe")
    probe.submit(suspend=True)
    site.until(lambda: probe.conditions, "the operator to be at work")
    job = LaunchedPyTorchJob(site, "spared")
    job.submit()
    yield job
    for one in (probe, job):
        one.delete()


def test_ranks_restart_in_their_pods_and_on_the_hot_spare_of_a_bad_node(
    site: Site, job: LaunchedPyTorchJob, matrix: Matrix
) -> None:
    master, worker = job.round(1)
    before = job.uids
    assert len(before) == 3
    assert master == "spared-master-0"
    (spare,) = before.keys() - {master, worker}

    number = 1
    while number == 1 or "hot spares: 1" not in job.printed("RoundStarted")[-1]:
        began = time.monotonic()
        (job.folder / f"exit.{number}.1").touch()
        number += 1
        assert job.round(number) == [master, worker]
        in_place = {"resumed": time.monotonic() - began}
    assert job.uids == before

    waits = job.pods[worker]["spec"]["nodeName"]
    site.cluster.nodes[waits].log(REBOOT_WHEN_IDLE_XID)
    site.until(lambda: site.health(waits) != "Schedulable", "the fault to be known")
    (job.folder / f"exit.{number}.0").touch()
    assert job.round(number + 1) == [master, spare]
    assert job.uids == before

    bad = job.pods[spare]["spec"]["nodeName"]
    began = time.monotonic()
    site.cluster.nodes[bad].log(REPLACE_XID)
    assert job.round(number + 2)[0] == master
    on_spare = {"resumed": time.monotonic() - began}
    site.until(lambda: job.uids.get(spare) not in (None, before[spare]), "the pod to be exchanged")
    assert {name: job.uids[name] for name in (master, worker)} == {
        name: before[name] for name in (master, worker)
    }
    assert job.pods[spare]["spec"].get("nodeName") != bad

    *restarted, left, exchanged = job.printed("RanksRestarted")
    assert all(one.startswith("in-place") for one in restarted)
    assert left.startswith("spare: exit code 5")
    assert exchanged.startswith("spare: ")
    column = f"{NODES}/PyTorchJob"
    matrix.record("launch-rank", column, {"job": "running", "rung": "in-place"}, in_place)
    matrix.record("launch-repair", column, {"job": "running", "rung": "hot-spare"}, on_spare)
    (job.folder / "finish").touch()
    site.until(lambda: job.phases(master, worker) == {"Succeeded"}, "the launchers to succeed")


@pytest.fixture
def launched(site: Site, operators: None) -> Iterator[Callable[[type[LaunchedJob]], LaunchedJob]]:
    """Submits a job of a kind."""
    made = []

    def submit(kind: type[LaunchedJob]) -> LaunchedJob:
        job = kind(site, f"launched-{kind.kind.lower()}")
        made.append(job)
        job.submit()
        return job

    yield submit
    for job in made:
        job.delete()


@pytest.mark.parametrize("kind", [LaunchedJobSet, LaunchedTrainJob])
def test_ranks_of_a_killed_rank_restart_in_their_pods(
    site: Site,
    launched: Callable[[type[LaunchedJob]], LaunchedJob],
    kind: type[LaunchedJob],
    matrix: Matrix,
) -> None:
    job = launched(kind)
    hosts = job.round(1)
    before = job.uids
    assert len(before) == 2

    began = time.monotonic()
    job.kill(1, 1)
    assert job.round(2) == hosts
    in_place = {"resumed": time.monotonic() - began}

    assert job.uids == before
    [restarted] = job.printed("RanksRestarted")
    assert restarted.startswith("in-place")
    (job.folder / "finish").touch()
    site.until(lambda: job.phases(*before) == {"Succeeded"}, "the launchers to succeed")
    site.until(lambda: job.conditions & {"Complete", "Completed"}, "its operator to know")
    assert job.uids == before
    assert {*job.starts.values()} == {0}
    column = f"{NODES}/{kind.kind}"
    matrix.record("launch-rank", column, {"job": "running", "rung": "in-place"}, in_place)
