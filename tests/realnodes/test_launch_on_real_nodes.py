"""A PyTorchJob of Kubeflow's operator with launchers in real pods, one of them a hot spare."""

from collections.abc import Iterator
from typing import Any

import pytest
from site_of_nodes import REPLACE_XID, XID, Site

from holdfast.model.names import Labels
from tests.engines.machine_image import IMAGE

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
START = """
if [ "$PET_NODE_RANK" = 0 ]; then
    hostname -i > /shared/new
    mv /shared/new /shared/address
fi
while [ ! -e /shared/address ]; do sleep 0.1; done
export PET_MASTER_ADDR=$(cat /shared/address)
exec holdfast launch --nnodes 2:3 --nproc-per-node 1 --lease-timeout 5s \\
    --local-addr $(hostname -i) /shared/train.py
"""
"""Finds the first pod without the name of its Service: this cluster has no DNS server."""

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

    def submit(self) -> None:
        replicas = {
            kind: {
                "replicas": count,
                "restartPolicy": "OnFailure",
                "template": {"spec": self._pod()},
            }
            for kind, count in (("Master", 1), ("Worker", 2))
        }
        body = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": self.name},
            "spec": {"pytorchReplicaSpecs": replicas, "runPolicy": {"cleanPodPolicy": "None"}},
        }
        self.site.cluster.plane.request("POST", COLLECTION, body)

    def _pod(self) -> Object:
        container = {
            "name": "pytorch",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sh", "-ec", START],
            "env": [{"name": "HOLDFAST_LAUNCH_KEY", "value": "0123456789abcdef"}],
            "ports": [{"containerPort": 29400, "hostPort": 29400}],  # one pod on each node
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
        return [one.read_text(encoding="utf-8") for one in ranks]

    def restarts(self) -> list[str]:
        """Rungs that the coordinator has used."""
        log = self.site.kubectl("logs", f"{self.name}-master-0")
        mark = "holdfast: RanksRestarted: "
        return [line.removeprefix(mark) for line in log.splitlines() if line.startswith(mark)]


@pytest.fixture
def job(site: Site, training_operator: None) -> Iterator[LaunchedJob]:
    """A job that is submitted."""
    job = LaunchedJob(site, "spared")
    job.submit()
    yield job
    site.cluster.plane.request("DELETE", COLLECTION, {"propagationPolicy": "Background"})


def test_ranks_restart_in_their_pods_and_on_the_hot_spare_of_a_bad_node(
    site: Site, job: LaunchedJob
) -> None:
    master, worker = job.round(1)
    before = job.uids
    assert len(before) == 3
    assert master == "spared-master-0"
    (spare,) = before.keys() - {master, worker}

    (job.folder / "exit.1.1").touch()
    assert job.round(2) == [master, worker]
    assert job.uids == before

    waits = job.pods[worker]["spec"]["nodeName"]
    site.cluster.nodes[waits].log(REBOOT_WHEN_IDLE_XID)
    site.until(lambda: site.health(waits) != "Schedulable", "the fault to be known")
    (job.folder / "exit.2.0").touch()
    assert job.round(3) == [master, spare]
    assert job.uids == before

    bad = job.pods[spare]["spec"]["nodeName"]
    site.cluster.nodes[bad].log(REPLACE_XID)
    assert job.round(4)[0] == master
    site.until(lambda: job.uids.get(spare) not in (None, before[spare]), "the pod to be exchanged")
    assert {name: job.uids[name] for name in (master, worker)} == {
        name: before[name] for name in (master, worker)
    }
    assert job.pods[spare]["spec"].get("nodeName") != bad

    in_place, left, exchanged = job.restarts()
    assert in_place.startswith("in-place")
    assert left.startswith("spare: exit code 5")
    assert exchanged.startswith("spare: ")
    (job.folder / "finish").touch()
    site.until(lambda: job.phases(master, worker) == {"Succeeded"}, "the launchers to succeed")
