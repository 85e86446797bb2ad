"""Jobs that lose nodes, with Kubeflow's training operator and a real controller."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from controlled import install, installed, is_served  # noqa: F401 - a fixture
from machines import REBOOT_XID, REPLACE_XID, Fleet, a_fleet, stays
from real_cluster import Cluster, connected, until
from training import JOBS, PODS, Training

from holdfast.adapters.kubernetes.jobs.objects import QUEUE
from holdfast.model.names import ATTEMPT, JOB_RECORD, JOB_STATUS, RECORD_OF, Labels, Reason
from tests.engines.control_plane import Built, ControlPlane
from tests.engines.job_operators import TRAINING_OPERATOR, run_training_operator

SETTINGS = """
[nodes]
drain_timeout = "20s"
max_unavailable = 2
"""
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"

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


@pytest.fixture
def quick(built: Built, binaries: dict[str, Path], tmp_path: Path):
    """A fleet on a control plane that gives up on nodes soon."""
    grace = timedelta(seconds=4)
    with (
        ControlPlane(binaries, node_grace=grace) as plane,
        connected(plane, binaries) as cluster,
    ):
        run_training_operator(plane, {**binaries, **built(TRAINING_OPERATOR)}, Training.kind)
        install(cluster)
        with a_fleet(cluster, tmp_path) as fleet:
            yield fleet


class PlayedKueue:
    """Suspends a job and lets it go as its ``Workload`` says, and has it no other way."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.api = fleet.api
        self.heard: list[bool] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.play, daemon=True)

    def submitted(self) -> Training:
        """A job in a queue, suspended from the start as Kueue's webhook does, then admitted."""
        job = Training(self.fleet.cluster, self.fleet.api, labels={QUEUE: "team"})
        job.submit(runPolicy={"suspend": True})
        about = {"name": "w", "labels": {"kueue.x-k8s.io/job-uid": job.job["metadata"]["uid"]}}
        workload = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": about}
        self.api.create(WORKLOADS, {**workload, "spec": {"active": True}})
        self.job = job
        self.thread.start()
        return job

    def play(self) -> None:
        while not self.over.wait(0.02):
            (workload,) = self.api.list(WORKLOADS)
            is_active = workload["spec"]["active"]
            if self.heard[-1:] != [is_active]:
                self.heard.append(is_active)
            if self.job.is_suspended == is_active:
                suspension = {"spec": {"runPolicy": {"suspend": not is_active}}}
                self.api.patch(f"{JOBS}/{self.job.name}", suspension)

    def stop(self) -> None:
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()


@pytest.fixture
def kueue(fleet: Fleet) -> Iterator[PlayedKueue]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1beta2",  # the real Kueue of other tests has v1beta1
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": "Workload", "plural": "workloads"}
    group = "kueue.x-k8s.io"
    fleet.api.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"workloads.{group}",
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
            },
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
        },
    )
    until(lambda: is_served(fleet.api, WORKLOADS))
    played = PlayedKueue(fleet)
    yield played
    played.stop()


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


def test_a_failed_container_restarts_the_whole_job_at_the_expense_of_the_application(
    fleet: Fleet, job: Training
) -> None:
    before = {pod["metadata"]["uid"] for pod in job.pods.values()}

    job.container_fails("llama-worker-0", 137, "OOMKilled")
    job.until_running(2)

    assert before.isdisjoint(pod["metadata"]["uid"] for pod in job.pods.values())
    assert (job.record["hardware_retries"], job.record["app_retries"]) == (0, 1)
    evidence = job.record["attempts"][0]["failure"]["evidence"]
    assert evidence == "node rank 1 was killed by signal 9 (OOMKilled)"
    until(lambda: "ApplicationFailure" in [reason for reason, _ in job.events])
    assert fleet.orders == []


def test_a_pod_that_somebody_takes_away_costs_no_retry(fleet: Fleet, job: Training) -> None:
    fleet.api.delete(f"{PODS}/llama-worker-0")
    job.until_running(2)

    assert (job.record["hardware_retries"], job.record["app_retries"]) == (0, 0)
    assert job.record["attempts"][0]["failure"]["reason"] == Reason.RANK_EVICTED


def test_a_job_whose_restarts_are_spent_has_failed_and_says_why(
    fleet: Fleet, job: Training
) -> None:
    for attempt in (1, 2, 3, 4):
        job.until_running(attempt)
        job.container_fails("llama-master-0", 1)

    until(lambda: "Failed" in job.conditions)
    until(lambda: job.phase == "failed")
    assert job.pods == {}
    (failed,) = [one for one in job.job["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["message"].startswith(
        "application retries exhausted (3 of 3); last failure: RankExited on"
    )
    until(lambda: "RestartsSpent" in [reason for reason, _ in job.events])


def test_a_job_stays_down_while_its_replacement_is_prepared(fleet: Fleet) -> None:
    fleet.carries_out = False
    fleet.start("a", "b")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b")
    job = Training(fleet.cluster, fleet.api)
    job.submit()
    job.until_running(1)

    fleet.machines["b"].log(REPLACE_XID)
    until(lambda: job.phase == "waiting" and fleet.orders)
    stays(lambda: job.is_suspended and job.pods == {}, 1)

    fleet.carries_out = True
    job.until_running(2)
    assert sorted(job.nodes) == ["a", "spare-1"]


@pytest.fixture
def waiting(fleet: Fleet) -> Training:
    """A job that is kept down while there is no other machine for it."""
    fleet.carries_out = False
    fleet.start("a", "b")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b")
    job = Training(fleet.cluster, fleet.api)
    job.submit()
    job.until_running(1)
    fleet.machines["b"].log(REPLACE_XID)
    until(lambda: job.phase == "waiting")
    return job


@pytest.mark.parametrize(
    "removed",
    [
        (Labels().enable_job_auto_resume,),
        (Labels().enable_job_auto_resume, JOB_RECORD, JOB_STATUS),
    ],
    ids=["the switch", "and the record"],
)
def test_a_job_that_is_let_go_is_not_left_suspended(
    fleet: Fleet, waiting: Training, removed: tuple[str, ...]
) -> None:
    fleet.api.patch(f"{JOBS}/llama", {"metadata": {"annotations": dict.fromkeys(removed)}})

    until(lambda: not waiting.is_suspended and waiting.record == {})
    until(lambda: len(waiting.pods) == 2)
    assert not set(waiting.job["metadata"]["annotations"]) & {JOB_RECORD, JOB_STATUS, RECORD_OF}


def test_a_job_whose_record_is_removed_while_it_is_down_begins_anew(
    fleet: Fleet, waiting: Training
) -> None:
    fleet.api.patch(f"{JOBS}/llama", {"metadata": {"annotations": {JOB_RECORD: None}}})
    stays(lambda: waiting.is_suspended and waiting.record == {}, 0.5)

    fleet.carries_out = True
    waiting.until_running(1)

    assert sorted(waiting.nodes) == ["a", "spare-1"]
    assert waiting.record["hardware_retries"] == 0


def test_a_job_that_a_person_suspends_is_left_alone(fleet: Fleet, job: Training) -> None:
    fleet.api.patch(f"{JOBS}/llama", {"spec": {"runPolicy": {"suspend": True}}})
    until(lambda: job.pods == {})
    stays(lambda: job.is_suspended, 1)

    fleet.api.patch(f"{JOBS}/llama", {"spec": {"runPolicy": {"suspend": False}}})
    job.until_running(2)

    assert (job.record["hardware_retries"], job.record["app_retries"]) == (0, 0)
    assert job.record["attempts"] == []


def test_what_cannot_be_used_is_reported_and_other_jobs_are_restarted(
    fleet: Fleet, job: Training
) -> None:
    names = Labels()
    fleet.start("d")
    odd = Training(fleet.cluster, fleet.api, name="odd", annotations={
        names.enable_job_auto_resume: "yes", names.job_max_retry_count: "-1",
    })  # fmt: skip
    odd.submit()

    until(lambda: len(odd.events) == 2)
    assert {reason for reason, _ in odd.events} == {"InvalidInput"}
    assert odd.record == {}
    job.container_fails("llama-worker-0", 1)
    job.until_running(2)


def test_a_controller_that_dies_in_the_middle_of_a_restart_is_followed_by_one_that_ends_it(
    fleet: Fleet, job: Training
) -> None:
    bad = job.nodes[1]
    fleet.cluster.nodes.hang(bad)  # so that its pod stays, and the restart with it
    fleet.machines[bad].log(REPLACE_XID)
    until(lambda: job.phase == "stopping")
    fleet.controllers[0].kill()

    fleet.control(settings=SETTINGS)
    job.until_running(2)

    assert job.record["hardware_retries"] == 1
    assert bad not in job.nodes
    assert len({order["token"] for order in fleet.orders}) == 1


def test_a_node_that_dies_in_silence_is_fenced_before_its_job_goes_on(
    quick: Fleet,
) -> None:
    quick.start("a", "b", "c")
    quick.control(settings=f'{SETTINGS}heartbeat_timeout = "12s"\n')
    quick.until_schedulable("a", "b", "c")
    job = Training(quick.cluster, quick.api)
    job.submit()
    job.until_running(1)
    dead = job.nodes[1]
    quick.carries_out = False

    quick.cluster.nodes.hang(dead)
    quick.machines[dead].power_off()
    until(lambda: quick.orders)
    stays(lambda: job.phase == "stopping" and "llama-worker-0" in job.pods, 2)

    quick.carries_out = True
    job.until_running(2)
    assert dead not in job.nodes
    assert job.record["attempts"][0]["failure"]["reason"] == Reason.NODE_SILENT


def test_a_job_in_a_queue_is_stopped_and_started_by_its_workload(
    fleet: Fleet, kueue: PlayedKueue
) -> None:
    fleet.start("a", "b", "c")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b", "c")
    job = kueue.submitted()
    job.until_running(1)
    before = {pod["metadata"]["uid"] for pod in job.pods.values()}

    fleet.machines[job.nodes[0]].log(REPLACE_XID)
    job.until_running(2)

    assert before.isdisjoint(pod["metadata"]["uid"] for pod in job.pods.values())
    assert kueue.heard == [True, False, True]
    metadata = job.pods["llama-worker-0"]["metadata"]
    assert metadata["annotations"][ATTEMPT] == "2"
    assert "HOLDFAST_ATTEMPT" not in job.environment("llama-worker-0")


def test_a_job_that_a_person_took_out_of_its_queue_stays_out_when_it_is_let_go(
    fleet: Fleet, kueue: PlayedKueue
) -> None:
    fleet.start("a", "b")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b")
    job = kueue.submitted()
    job.until_running(1)

    fleet.api.patch(f"{WORKLOADS}/w", {"spec": {"active": False}})
    until(lambda: job.is_suspended)
    off = {Labels().enable_job_auto_resume: None}
    fleet.api.patch(f"{JOBS}/llama", {"metadata": {"annotations": off}})

    until(lambda: job.record == {})
    stays(lambda: job.is_suspended, 0.5)
    assert kueue.heard == [True, False]
