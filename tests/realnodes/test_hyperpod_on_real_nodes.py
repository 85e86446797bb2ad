"""Jobs of HyperPod's own kind with real launchers in real pods, and AWS's command for them."""

import json
from pathlib import Path
from typing import Any

from site_of_nodes import HYPERPOD_JOBS, REPLACE_XID, Site
from training_job import FIND_MASTER

from holdfast.model.names import JOB_RECORD
from tests.engines.hyp_command import run_hyp
from tests.engines.machine_image import IMAGE

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
TRAINING = """
import os, pathlib, sys, time
folder = pathlib.Path("/shared")
name = f"{os.environ['HOLDFAST_LAUNCH_ROUND']}.{os.environ['RANK']}"
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
(folder / name).touch()
while not (folder / "finish").exists():
    if (folder / f"exit.{name}").exists():
        sys.exit(5)
    time.sleep(0.05)
"""
START = f"""\
{FIND_MASTER}exec hyperpodrun --server-port=8080 --tee=3 --log_dir=/tmp/logs --lease-timeout=5s \\
    /shared/train.py
"""

Object = dict[str, Any]


class HyperPodJob:
    """A job of two pods with two ranks each."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.name = name
        self.folder = site.shared / name
        self.folder.mkdir()
        self.folder.chmod(0o777)
        (self.folder / "train.py").write_text(TRAINING, encoding="utf-8")

    def submit(self) -> None:
        container = {
            "name": "trainer",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sh", "-ec", START],
            "ports": [{"containerPort": 29400, "hostPort": 29400}],  # one pod on each node
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        }
        pod = {
            "terminationGracePeriodSeconds": 5,
            "nodeSelector": {"sagemaker.amazonaws.com/node-health-status": "Schedulable"},
            "containers": [container],
            "volumes": [{"name": "shared", "hostPath": {"path": str(self.folder)}}],
        }
        policy = {"jobMaxRetryCount": 3, "cleanPodPolicy": "None"}
        replica = {"name": "pod", "replicas": 2, "template": {"spec": pod}}
        body = {
            "apiVersion": "sagemaker.amazonaws.com/v1",
            "kind": "HyperPodPyTorchJob",
            "metadata": {"name": self.name},
            "spec": {"nprocPerNode": "2", "replicaSpecs": [replica], "runPolicy": policy},
        }
        self.site.cluster.plane.request("POST", HYPERPOD_JOBS, body)

    @property
    def job(self) -> Object:
        found: Object = self.site.cluster.plane.request("GET", f"{HYPERPOD_JOBS}/{self.name}")
        return found

    @property
    def record(self) -> Object:
        found: Object = json.loads(self.job["metadata"]["annotations"][JOB_RECORD])
        return found

    @property
    def conditions(self) -> list[str]:
        found = (self.job.get("status") or {}).get("conditions") or ()
        return [one["type"] for one in found if one["status"] == "True"]

    @property
    def pods(self) -> dict[str, Object]:
        return {pod["metadata"]["name"]: pod for pod in self.site.pods(f"HPJob={self.name}")}

    @property
    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods.items()}

    def until_round(self, number: int) -> None:
        """Wait until all ranks of a round of the launchers run."""
        ranks = [self.folder / f"{number}.{rank}" for rank in range(4)]
        self.site.until(lambda: all(one.exists() for one in ranks), f"round {number}")


def hyp(site: Site, home: Path, command: str, *arguments: str) -> str:
    job = ("hyp-pytorch-job", "--job-name", "hp")
    return run_hyp(home, site.kubeconfig, command, *job, *arguments)


def test_ranks_restart_in_their_pods_and_a_bad_node_costs_one_pod(
    site: Site, tmp_path: Path
) -> None:
    job = HyperPodJob(site, "hp")
    job.submit()
    job.until_round(1)
    site.until(lambda: "Running" in job.conditions, "the job to run")
    before = job.uids
    assert sorted(before) == ["hp-pod-0", "hp-pod-1"]
    served = site.cluster.plane.request("GET", SLICES)["items"]
    shared = job.pods["hp-pod-0"]["spec"]["subdomain"]
    names = {
        end["hostname"]
        for one in served
        if one["metadata"]["labels"]["kubernetes.io/service-name"] == shared
        for end in one["endpoints"]
    }
    assert names == set(before)  # what a DNS server of the cluster resolves

    assert hyp(site, tmp_path, "exec", "--pod", "hp-pod-1", "--", "hostname").strip() == "hp-pod-1"
    assert "rank 3 of 4" in hyp(site, tmp_path, "get-logs", "--pod-name", "hp-pod-1")

    (job.folder / "exit.1.3").touch()
    job.until_round(2)
    assert job.uids == before

    bad = job.pods["hp-pod-1"]["spec"]["nodeName"]
    site.cluster.nodes[bad].log(REPLACE_XID)
    job.until_round(3)
    assert job.uids["hp-pod-0"] == before["hp-pod-0"]
    assert job.pods["hp-pod-1"]["spec"]["nodeName"] != bad
    site.until(lambda: job.job["status"]["restartCount"] == 1, "the restart to be counted")
    faulty = job.job["status"]["latestFaultyPodInstanceList"]
    assert (faulty["restartType"], faulty["faultyInstanceIdList"]) == ("PLR", [bad])

    (job.folder / "finish").touch()
    site.until(lambda: job.conditions == ["Created", "Succeeded"], "the job to succeed")
    site.until(lambda: job.record["phase"] == "succeeded", "the success to be recorded")
    assert {pod["status"]["phase"] for pod in job.pods.values()} == {"Succeeded"}
    site.kubectl("delete", "hyperpodpytorchjob", "hp")
    site.until(lambda: not job.pods, "the pods to go")
