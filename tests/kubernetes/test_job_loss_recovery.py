"""Jobs whose loss is NaN, with Kubeflow's training operator, a real controller and logs of pods."""

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from controlled import api_of, installed  # noqa: F401 - a fixture
from machines import Fleet, a_fleet, stays
from real_cluster import Cluster, until
from training import ON, Training

from holdfast.apps.kubernetes.jobs import KubernetesJobList
from holdfast.decisions.set_aside_records import moved_line
from holdfast.model.names import (
    APP_MAX_RETRY_COUNT,
    LOG_MONITORING_CONFIG_MAP,
    LOSS_ACTION,
)
from holdfast.model.set_aside import SetAside
from tests.engines.kubelet import PodServer


def line(step: int, loss: float) -> str:
    return f"step: {step:2}  loss: {loss:8.5f}  grad_norm:  1.2000"


GOOD = [line(step, 2.5) for step in range(1, 4)]
BAD = line(4, float("nan"))


HOME, OTHER = "p5", "p4"
"""Groups of the two nodes. Jobs stay in one: a step that fails on both is no fault of either."""


class Losing(Training):
    """A job whose pods log losses."""

    kubelet: PodServer

    def log(self, pod: str, *lines: str) -> None:
        self.kubelet.write_lines(f"{self.name}-{pod}", *lines)

    @property
    def reasons(self) -> list[str]:
        return [one["failure"]["reason"] for one in self.record["attempts"] if one["failure"]]

    def until_failed(self) -> None:
        until(lambda: self.phase == "failed")


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


@pytest.fixture
def served(fleet: Fleet) -> Iterator[PodServer]:
    """Two nodes with room for all pods, a controller and the pods' logs."""
    fleet.start("a")
    fleet.start("b", group=OTHER)
    for name in ("a", "b"):
        many = {"nvidia.com/gpu": "128", "cpu": "128"}
        status = {"status": {"capacity": many, "allocatable": many}}
        fleet.api.patch(f"/api/v1/nodes/{name}/status", status)
    with PodServer(fleet.cluster.plane) as kubelet:
        kubelet.serve("a", "b")
        fleet.control(election="")  # a leader that has lost its lease reports each fault again
        fleet.until_schedulable("a", "b")
        yield kubelet


def submitted(fleet: Fleet, served: PodServer, name: str, annotations: dict[str, str]) -> Losing:
    job = Losing(fleet.cluster, fleet.api, name, annotations={**ON, **annotations}, group=HOME)
    job.kubelet = served
    job.submit()
    return job


@pytest.mark.usefixtures("training_operator")
def test_each_action_is_carried_out_and_no_job_restarts_without_end(
    fleet: Fleet, served: PodServer
) -> None:
    actions = {
        "ask": {LOSS_ACTION: "ask"},
        "stop": {LOSS_ACTION: "stop"},
        "back": {LOSS_ACTION: "rollback", APP_MAX_RETRY_COUNT: "2"},
        "skip": {LOSS_ACTION: "skip"},
        "unset": {LOG_MONITORING_CONFIG_MAP: ""},
    }
    jobs = {name: submitted(fleet, served, name, one) for name, one in actions.items()}
    for job in jobs.values():
        job.until_running(1)
        job.log("master-0", *GOOD)
    jobs["ask"].log("worker-0", "holdfast: StragglerFound: round 1: rank 1 on b is slow")
    moved = SetAside(
        name="iter_2",
        path="/ckpt.set-aside/iter_2",
        why="damaged: x",
        at=datetime.now(UTC),
        state="damaged",
        resumed="iter_1",
    )
    jobs["ask"].log("master-0", "holdfast: CheckpointChosen: iter_2 is broken", moved_line(moved))
    stays(lambda: all(job.record["attempt"] == 1 for job in jobs.values()), 2)
    with closing(KubernetesJobList(api_of(fleet.cluster), "default")) as listed:
        found = listed.with_steps(listed.jobs(), timedelta(seconds=30))
    assert [one.step for one in found] == [3] * len(jobs)
    both = {"StragglerFound", "CheckpointChosen"}
    until(lambda: both <= {reason for reason, _ in jobs["ask"].events})
    chosen = [text for reason, text in jobs["ask"].events if reason == "CheckpointChosen"]
    assert chosen == ["pytorchjob/default/ask: before attempt 1: iter_2 is broken"]
    until(lambda: [one for one in fleet.incidents if one.checkpoint is not None])
    [incident] = [one for one in fleet.incidents if one.checkpoint is not None]
    assert (incident.job, incident.checkpoint) == ("pytorchjob/default/ask", moved)

    for job in jobs.values():
        job.log("master-0", BAD)
        job.log("worker-0", BAD)
    jobs["stop"].until_failed()
    jobs["back"].until_running(2)
    jobs["skip"].until_running(2)

    until(lambda: any(reason == "LossFault" for reason, _ in jobs["ask"].events))
    named = r"(node rank \d on [ab]|all ranks that log losses): the loss is nan at step 4"
    (fault,) = [text for reason, text in jobs["ask"].events if reason == "LossFault"]
    assert re.search(named, fault)
    assert jobs["ask"].record["attempt"] == jobs["unset"].record["attempt"] == 1
    assert jobs["stop"].record["reason"].startswith("loss_action is stop: check")
    assert jobs["stop"].record["attempt"] == 1
    back = jobs["back"].environment("back-master-0")
    assert back["HOLDFAST_RESTART_REASON"] == "LossNotFinite"
    assert back["HOLDFAST_SKIP_STEPS"] == ""
    assert back["HOLDFAST_BAD_LOSS"].startswith("4@20")
    assert jobs["skip"].environment("skip-worker-0")["HOLDFAST_SKIP_STEPS"] == "3,4"

    jobs["skip"].log("master-0", BAD)  # it did not skip it
    jobs["back"].log("worker-0", BAD)  # the first step after the restart
    jobs["skip"].until_failed()
    jobs["back"].until_running(3)
    jobs["back"].log("master-0", BAD)
    jobs["back"].until_failed()
    assert "the job did not skip it" in jobs["skip"].record["reason"]
    assert "no progress: 3 failures in a row at step 4" in jobs["back"].record["reason"] or (
        "application retries exhausted (2 of 2)" in jobs["back"].record["reason"]
    )
    assert jobs["back"].reasons == ["LossNotFinite"] * 3


@pytest.mark.usefixtures("training_operator")
def test_a_fault_counts_once_although_the_controller_is_replaced_and_the_next_job_is_another(
    fleet: Fleet, served: PodServer
) -> None:
    job = submitted(fleet, served, "llama", {LOSS_ACTION: "rollback"})
    job.until_running(1)
    job.log("master-0", *GOOD)
    fleet.controllers[-1].kill()
    job.log("master-0", BAD)
    fleet.control()
    until(lambda: job.phase == "stopping" or job.record["attempt"] == 2)
    fleet.controllers[-1].kill()
    fleet.control()
    job.until_running(2)
    stays(lambda: (job.phase, job.record["attempt"]) == ("running", 2), 3)
    assert job.reasons == ["LossNotFinite"]
    assert job.record["app_retries"] == 1

    fleet.api.delete(f"{job.collection}/{job.name}")
    job.until_gone()
    until(lambda: not job.pods)
    again = submitted(fleet, served, "llama", {LOSS_ACTION: "rollback"})
    again.until_running(1)
    again.log("master-0", *GOOD)
    stays(lambda: (again.phase, again.record["attempt"]) == ("running", 1), 3)
