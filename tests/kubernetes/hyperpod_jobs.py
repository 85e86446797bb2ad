"""HyperPod's own kind of jobs on a real cluster, as people submit them."""

from pathlib import Path
from typing import Any

from controlled import is_served
from gangs import SETTINGS, Gang, pods
from machines import Fleet
from real_cluster import Cluster, until

CRD = Path(__file__).parents[2] / "deploy/helm/holdfast/hyperpod/hyperpodpytorchjobs.yaml"
OPERATED = f"""
{SETTINGS}
[kubernetes]
job_kinds = ["HyperPodPyTorchJob"]
"""


class HyperPod(Gang):
    """A HyperPodPyTorchJob of two nodes."""

    collection = "/apis/sagemaker.amazonaws.com/v1/namespaces/default/hyperpodpytorchjobs"
    api_version = "sagemaker.amazonaws.com/v1"
    kind = "HyperPodPyTorchJob"
    pod_label = "HPJob"

    def body(self) -> dict[str, Any]:
        return {"replicaSpecs": [{"name": "pod", "replicas": 2, "template": pods()}]}

    @property
    def is_suspended(self) -> bool:
        return (self.job["spec"].get("runPolicy") or {}).get("suspend") is True

    @property
    def status(self) -> dict[str, Any]:
        return self.job.get("status") or {}

    @property
    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods.values()}


def define(cluster: Cluster, fleet: Fleet) -> None:
    """The kind is served from now on."""
    cluster.kubectl("apply", "--filename", str(CRD))
    until(lambda: is_served(fleet.api, HyperPod.collection))
