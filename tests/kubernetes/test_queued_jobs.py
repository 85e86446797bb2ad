"""Jobs in the queues of Kueue that lose nodes: it alone suspends them, and is asked to."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from controlled import install
from gangs import SETTINGS, Indexed, Set
from kueues import QUEUE, WORKLOADS, run_kueue
from machines import REPLACE_XID, Fleet, a_fleet
from real_cluster import connected
from training import Training

from tests.engines.control_plane import Built, ControlPlane
from tests.engines.job_operators import TRAINING_OPERATOR, run_training_operator
from tests.engines.job_sets import run_jobset

KINDS = ("batch/job", "jobset.x-k8s.io/jobset", "kubeflow.org/pytorchjob")
LABELS = {"kueue.x-k8s.io/queue-name": QUEUE}


@pytest.fixture(scope="module")
def fleet(
    built: Built,
    binaries: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """On a control plane of its own, as nothing gets past its webhooks once it is gone."""
    programs = {**binaries, **built("kueue", "jobset", TRAINING_OPERATOR)}
    with ControlPlane(binaries) as plane, connected(plane, binaries) as cluster:
        run_training_operator(plane, programs, Training.kind)
        run_jobset(plane, programs["jobset"], binaries)
        run_kueue(plane, programs["kueue"], binaries, KINDS)
        install(cluster)
        with a_fleet(cluster, tmp_path_factory.mktemp("fleet")) as fleet:
            yield fleet


def workloads(fleet: Fleet) -> Mapping[str, dict]:
    """By the name of their job."""
    found = fleet.api.list(WORKLOADS)
    return {one["metadata"]["ownerReferences"][0]["name"]: one for one in found}


def test_a_fault_restarts_jobs_in_a_queue_by_way_of_kueue(fleet: Fleet) -> None:
    fleet.start(*"abcdef")
    fleet.control(settings=SETTINGS.replace("max_unavailable = 2", "max_unavailable = 3"))
    fleet.until_schedulable(*"abcdef")
    kinds = {"torch": Training, "plain": Indexed, "set": Set}
    jobs = [kind(fleet.cluster, fleet.api, name, labels=LABELS) for name, kind in kinds.items()]
    for job in jobs:
        job.submit()
    for job in jobs:
        job.until_running(1)
    bad = [job.nodes[1] for job in jobs]
    before = {pod["metadata"]["uid"] for job in jobs for pod in job.pods.values()}

    for node in bad:
        fleet.machines[node].log(REPLACE_XID)
    for job in jobs:
        job.until_running(2)

    assert before.isdisjoint(p["metadata"]["uid"] for job in jobs for p in job.pods.values())
    for job in jobs:
        assert not set(bad) & set(job.nodes)
        assert job.record["hardware_retries"] == 1
        workload = workloads(fleet)[job.name]
        assert workload["spec"]["active"] is True
        assert workload["status"]["schedulingStats"]["evictions"]
    # Kueue makes a Job's pods as they were at first.
    assert [attempt_of(job) for job in jobs] == ["2", "", "2"]


def attempt_of(job: Training) -> str:
    """As its pods are told."""
    (attempt,) = {
        pod["metadata"].get("annotations", {}).get("holdfast.dev/attempt", "")
        for pod in job.pods.values()
    }
    return attempt
