"""A PyTorchJob of Kubeflow's operator with launchers in real pods, one of them a hot spare."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from site_of_nodes import REPLACE_XID, XID, Site
from training_job import FIND_MASTER

from holdfast.model.names import Labels
from tests.engines.machine_image import IMAGE
from tests.engines.matrix import Matrix
from tools.fault_matrix import NODES

COLLECTION = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
REBOOT_WHEN_IDLE_XID = XID.format(63)
TRAINING = """
import os, pathlib, socket, sys, time
folder = pathlib.Path("/shared")
name = f"{os.environ['HOLDFAST_LAUNCH_ROUND']}.{os.environ['RANK']}"
(folder / f"new.{name}").write_text(socket.gethostname())
(folder / f"new.{name}").rename(folder / name)
while not (folder / "finish").exists():
    if (folder / f"exit.{name}").exists():
        sys.exit(5)
    time.sleep(0.05)
"""
START = f"""\
{FIND_MASTER}exec holdfast launch --nnodes 2:3 --nproc-per-node 1 --lease-timeout 5s \\
    --max-restarts 99 --offender-failures 0 --local-addr $(hostname -i) /shared/train.py
"""

PORT = {"name": "pytorchjob-port", "containerPort": 29400, "hostPort": 29400}
"""Without its name, the operator creates no Service. As a port of the node, it allows one pod on
each node."""

Object = dict[str, Any]


class LaunchedJob:
    """A master and two workers, of which one stands by."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.name = name
        self.folder = site.shared / name
        self.folder.mkdir()
        self.folder.chmod(0o777)
        (self.folder / "train.py").write_text(TRAINING, encoding="utf-8")

    def submit(self, *, suspend: bool = False) -> None:
        replicas = {
            kind: {
                "replicas": count,
                "restartPolicy": "OnFailure",
                "template": {"spec": self._pod()},
            }
            for kind, count in (("Master", 1), ("Worker", 2))
        }
        policy = {"cleanPodPolicy": "None", "suspend": suspend}
        body = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": self.name},
            "spec": {"pytorchReplicaSpecs": replicas, "runPolicy": policy},
        }
        self.site.cluster.plane.request("POST", COLLECTION, body)

    @property
    def is_reconciled(self) -> bool:
        found = self.site.cluster.plane.request("GET", f"{COLLECTION}/{self.name}")
        return bool((found.get("status") or {}).get("conditions"))

    def _pod(self) -> Object:
        container = {
            "name": "pytorch",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sh", "-ec", START],
            "env": [{"name": "HOLDFAST_LAUNCH_KEY", "value": "0123456789abcdef"}],
            "ports": [PORT],
            "volumeMounts": [
                {"name": "shared", "mountPath": "/shared"},
                {"name": "agent", "mountPath": "/run/holdfast", "readOnly": True},
            ],
        }
        return {
            "terminationGracePeriodSeconds": 5,
            "nodeSelector": {Labels().node_health_status: "Schedulable"},
            "containers": [container],
            "volumes": [
                {"name": "shared", "hostPath": {"path": str(self.folder)}},
                {"name": "agent", "hostPath": {"path": "/run/holdfast"}},
            ],
        }

    @property
    def pods(self) -> dict[str, Object]:
        found = self.site.pods(f"training.kubeflow.org/job-name={self.name}")
        return {pod["metadata"]["name"]: pod for pod in found}

    @property
    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods.items()}

    def phases(self, *pods: str) -> set[str]:
        return {self.pods[name]["status"]["phase"] for name in pods}

    def round(self, number: int) -> list[str]:
        """Pods of a round by rank, when both run."""
        ranks = [self.folder / f"{number}.{rank}" for rank in range(2)]
        self.site.until(lambda: all(one.exists() for one in ranks), f"round {number}")
        self.site.until(lambda: len(self.printed("RoundStarted")) == number, "its message")
        return [one.read_text(encoding="utf-8") for one in ranks]

    def printed(self, reason: str) -> list[str]:
        """What the coordinator has printed for a reason."""
        log = self.site.kubectl("logs", f"{self.name}-master-0")
        mark = f"holdfast: {reason}: "
        return [line.removeprefix(mark) for line in log.splitlines() if line.startswith(mark)]


@pytest.fixture
def job(site: Site, training_operator: None) -> Iterator[LaunchedJob]:
    """A job that is submitted."""
    probe = LaunchedJob(site, "probe")
    probe.submit(suspend=True)
    site.until(lambda: probe.is_reconciled, "the operator to be at work")
    job = LaunchedJob(site, "spared")
    job.submit()
    yield job
    site.cluster.plane.request("DELETE", COLLECTION, {"propagationPolicy": "Background"})


def test_ranks_restart_in_their_pods_and_on_the_hot_spare_of_a_bad_node(
    site: Site, job: LaunchedJob, matrix: Matrix
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
