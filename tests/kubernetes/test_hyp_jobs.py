"""AWS's command ``hyp`` with jobs that Holdfast operates, as its guide shows them."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from hyperpod_jobs import OPERATED, HyperPod, define
from machines import Fleet, a_fleet
from real_cluster import Cluster, until

from tests.engines.hyp_command import run_hyp
from tests.engines.kubelet import PodServer

Hyp = Callable[..., str]
JOB = ("--job-name", "llama")


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        define(cluster, fleet)
        fleet.start("a", "b", "c")
        fleet.control(settings=OPERATED)
        fleet.until_schedulable("a", "b", "c")
        yield fleet


@pytest.fixture
def hyp(fleet: Fleet, tmp_path: Path) -> Hyp:
    """Runs ``hyp`` with the context of an administrator of the cluster, and returns its output."""
    return partial(run_hyp, tmp_path, fleet.cluster.plane.kubeconfig())


def listed(output: str) -> dict[str, str]:
    """Names of jobs with their status, as ``hyp list`` prints them."""
    rows = [line.split() for line in output.splitlines()]
    return {row[0]: row[2] for row in rows if len(row) == 4 and row[1] == "default"}


def created(hyp: Hyp, name: str, *more: str) -> None:
    image = ("--image", "registry.example/trainer", "--replica-count", "2")
    hyp("create", "hyp-pytorch-job", "--version", "1.1", "--job-name", name, *image, *more)


def pods(output: str) -> Sequence[str]:
    return sorted(re.findall(r"^(llama-\S+)", output, re.MULTILINE))


def test_a_job_is_created_watched_and_deleted(fleet: Fleet, hyp: Hyp, kubelet: PodServer) -> None:
    job = HyperPod(fleet.cluster, fleet.api, "llama")
    kubelet.serve("a", "b", "c")

    created(hyp, "llama", "--command", "[hyperpodrun, --tee=3, train.py]", "--max-retry", "2")
    until(lambda: "Running" in job.conditions)

    assert listed(hyp("list", "hyp-pytorch-job")) == {"llama": "Running"}
    shown = hyp("describe", "hyp-pytorch-job", *JOB)
    assert "registry.example/trainer" in shown
    assert re.search(r"Type: +Running\n +Status: +True", shown)
    names = pods(hyp("list-pods", "hyp-pytorch-job", *JOB))
    assert names == ["llama-pod-0", "llama-pod-1"]
    kubelet.write_lines("llama-pod-0", "step 1 loss 2.5")
    assert "step 1 loss 2.5" in hyp("get-logs", "hyp-pytorch-job", *JOB, "--pod-name", names[0])
    (container,) = job.pods["llama-pod-1"]["spec"]["containers"]
    assert container["command"] == ["hyperpodrun", "--tee=3", "train.py"]
    assert job.environment("llama-pod-1")["PET_NNODES"] == "2"

    fleet.cluster.nodes.finish("llama-pod-1", exit_code=3)
    job.until_running(2)
    until(lambda: job.conditions[-1] == "Running")
    assert listed(hyp("list", "hyp-pytorch-job")) == {"llama": "Running"}
    hyp("describe", "hyp-pytorch-job", *JOB)  # it reads all fields of the status, too

    for name in names:
        fleet.cluster.nodes.finish(name, exit_code=0)
    until(lambda: job.phase == "succeeded")
    assert listed(hyp("list", "hyp-pytorch-job")) == {"llama": "Succeeded"}
    assert len(job.pods) == 2  # --max-retry makes hyp keep the pods of a job that has ended
    assert "step 1" not in hyp("get-logs", "hyp-pytorch-job", *JOB, "--pod-name", names[0])
    hyp("delete", "hyp-pytorch-job", *JOB)
    job.until_gone()
    until(lambda: not job.pods)


def test_the_next_job_of_a_name_and_another_beside_it_run(fleet: Fleet, hyp: Hyp) -> None:
    created(hyp, "llama")
    hyp("delete", "hyp-pytorch-job", *JOB)  # while it starts
    created(hyp, "llama")
    created(hyp, "other")

    jobs = [HyperPod(fleet.cluster, fleet.api, name) for name in ("llama", "other")]
    until(lambda: all("Running" in job.conditions for job in jobs))
    assert listed(hyp("list", "hyp-pytorch-job")) == {"llama": "Running", "other": "Running"}


def test_what_hyp_can_ask_for_and_holdfast_cannot_do_is_shown_as_failed(
    fleet: Fleet, hyp: Hyp
) -> None:
    created(hyp, "queued", "--queue-name", "team", "--priority", "high")
    created(hyp, "elastic", "--max-node-count", "4", "--elastic-replica-increment-step", "1")

    jobs = [HyperPod(fleet.cluster, fleet.api, name) for name in ("queued", "elastic")]
    until(lambda: all("Failed" in job.conditions for job in jobs))
    assert listed(hyp("list", "hyp-pytorch-job")) == {"queued": "Failed", "elastic": "Failed"}
    queued, elastic = (hyp("describe", "hyp-pytorch-job", "--job-name", job.name) for job in jobs)
    assert "kueue.x-k8s.io/queue-name is team: expected no queue" in queued
    assert "spec.elasticPolicy is an object: expected no value" in elastic
