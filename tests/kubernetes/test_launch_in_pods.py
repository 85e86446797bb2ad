"""``holdfast launch`` in pods: ranks restart in them, and a bad node costs one pod."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from controlled import installed  # noqa: F401 - a fixture
from gangs import SETTINGS, Indexed, Set, pods
from machines import REPLACE_XID, Fleet, a_fleet
from real_cluster import Cluster, until
from real_ranks import real_ranks
from training import ON, Training

from holdfast.kit.free_ports import free_port
from holdfast.model.names import KEEP_PODS

RANK = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
name = f"{os.environ['HOLDFAST_LAUNCH_ROUND']}.{os.environ['RANK']}"
(folder / name).touch()
while not (folder / "finish").exists():
    if (folder / f"exit.{name}").exists():
        sys.exit(5)
    time.sleep(0.01)
"""


KEPT = {**ON, KEEP_PODS: "true"}
"""Annotations of a job that Holdfast resumes, with its pods."""


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


class LaunchedJob(Indexed):
    """An indexed Job whose pods run one container with a command."""

    def body(self) -> dict[str, object]:
        body = super().body()
        body["template"]["spec"]["containers"][0] |= self.container
        return body


class LaunchedSet(Set):
    """A JobSet of one indexed Job whose pods run one container with a command."""

    def body(self) -> dict[str, object]:
        template = pods()
        template["spec"]["containers"][0] |= self.container
        job = {
            "completionMode": "Indexed",
            "completions": 2,
            "parallelism": 2,
            "template": template,
        }
        return {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}]}


def launcher(folder: Path) -> dict[str, object]:
    """What the container of each pod runs."""
    script = folder / "train.py"
    script.write_text(RANK, encoding="utf-8")
    meeting = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port()))
    node = ("--node-rank", "$(JOB_COMPLETION_INDEX)", "--nproc-per-node", "1")
    node += ("--local-addr", "127.0.0.1", "--lease-timeout", "5s")
    start = (sys.executable, "-m", "holdfast", "launch")
    command = (*start, *meeting, *node, script, folder)
    return {
        "command": [str(part) for part in command],
        "env": [{"name": "HOLDFAST_LAUNCH_KEY", "value": os.urandom(16).hex()}],
    }


@pytest.mark.usefixtures("job_sets")
@pytest.mark.parametrize(
    ("kind", "annotations", "bad_rank"),
    [
        (LaunchedJob, {}, 1),
        (LaunchedJob, KEPT, 1),
        (LaunchedJob, KEPT, 0),
        (LaunchedSet, KEPT, 1),
        (LaunchedSet, KEPT, 0),
    ],
    ids=["drained", "resumed", "coordinator", "job-set", "coordinator-of-a-job-set"],
)
def test_a_rank_restarts_in_its_pod_and_a_bad_node_costs_one_pod(
    fleet: Fleet,
    tmp_path: Path,
    kind: type[LaunchedJob | LaunchedSet],
    annotations: dict[str, str],
    bad_rank: int,
) -> None:
    job = kind(fleet.cluster, fleet.api, annotations=annotations)
    job.container = launcher(tmp_path)
    fleet.start("a", "b", "c")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b", "c")

    def until_round(number: int) -> None:
        until(lambda: len(list(tmp_path.glob(f"{number}.*"))) == 2)

    with real_ranks(fleet, tmp_path):
        job.submit()
        until_round(1)
        first = uids(job)
        (tmp_path / "exit.1.1").touch()
        until_round(2)
        assert uids(job) == first
        names = sorted(job.pods)
        stays = job.pods[names[1 - bad_rank]]["metadata"]["uid"]
        bad = job.pods[names[bad_rank]]["spec"]["nodeName"]
        fleet.machines[bad].log(REPLACE_XID)
        until_round(3)
        assert first & uids(job) == {stays}
        assert bad not in job.nodes
        (tmp_path / "finish").touch()
        until(lambda: {"Complete", "Completed"} & {*job.conditions})


def uids(job: Training) -> set[str]:
    return {pod["metadata"]["uid"] for pod in job.pods.values()}
