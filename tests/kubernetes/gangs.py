"""Training jobs of other kinds than PyTorchJob, as people submit them."""

import time
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from machines import REPLACE_XID, Fleet
from real_cluster import until
from training import PODS, Training

from holdfast.model.names import APP_MAX_RETRY_COUNT, KEEP_PODS, Labels
from tests.engines.matrix import Matrix
from tools.fault_matrix import OPERATORS

SETTINGS = """
[nodes]
drain_timeout = "20s"
max_unavailable = 2
"""


def pods(name: str = "trainer", **spec: Any) -> dict[str, Any]:
    """A pod template whose pods take a whole node each."""
    container = {"name": name, "image": "none", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    return {
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 10,
            "nodeSelector": {Labels().node_health_status: "Schedulable"},
            "containers": [container],
            **spec,
        }
    }


@dataclass
class Gang(Training):
    """One job of two ranks."""

    collection: ClassVar[str]
    api_version: ClassVar[str]
    kind: ClassVar[str]
    pod_label: ClassVar[str]
    restarts_in_place = False

    def body(self) -> dict[str, Any]:
        """Its ``spec``."""
        raise NotImplementedError

    def submit(self, **spec: Any) -> None:
        body = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {
                "name": self.name,
                "annotations": self.annotations,
                "labels": self.labels,
            },
            "spec": {**self.body(), **spec},
        }
        self.api.create(self.collection, self.placed(body))

    @property
    def job(self) -> dict[str, Any]:
        return self.api.get(f"{self.collection}/{self.name}")

    @property
    def is_suspended(self) -> bool:
        return self.job["spec"].get("suspend") is True

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        return {
            pod["metadata"]["name"]: pod
            for pod in self.api.list(PODS)
            if pod["metadata"]["labels"].get(self.pod_label) == self.name
        }

    @property
    def running(self) -> list[str]:
        """Names of pods that run."""
        return [name for name, pod in self.pods.items() if pod["status"]["phase"] == "Running"]


class Indexed(Gang):
    """A Job of its own."""

    collection = "/apis/batch/v1/namespaces/default/jobs"
    api_version = "batch/v1"
    kind = "Job"
    pod_label = "batch.kubernetes.io/job-name"

    def body(self) -> dict[str, Any]:
        return {
            "completionMode": "Indexed",
            "completions": 2,
            "parallelism": 2,
            "template": pods(),
        }


class Set(Gang):
    """A JobSet of two Jobs with a pod each."""

    collection = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    api_version = "jobset.x-k8s.io/v1alpha2"
    kind = "JobSet"
    pod_label = "jobset.sigs.k8s.io/jobset-name"

    def body(self) -> dict[str, Any]:
        job = {"completions": 1, "parallelism": 1, "template": pods()}
        return {"replicatedJobs": [{"name": "node", "replicas": 2, "template": {"spec": job}}]}

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The status of each of its replicated jobs; none before JobSet has written it."""
        return self.job.get("status", {}).get("replicatedJobsStatus", [])


class Mpi(Gang):
    """An MPIJob of a launcher, which needs no device, and two workers."""

    collection = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
    api_version = "kubeflow.org/v2beta1"
    kind = "MPIJob"
    pod_label = "training.kubeflow.org/job-name"

    def body(self) -> dict[str, Any]:
        launcher = pods(containers=[{"name": "mpirun", "image": "none", "command": ["mpirun"]}])
        for one in (launcher, worker := pods()):
            del one["spec"]["restartPolicy"]
        return {
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": launcher},
                "Worker": {"replicas": 2, "template": worker},
            }
        }

    @property
    def is_suspended(self) -> bool:
        return self.job["spec"]["runPolicy"].get("suspend") is True

    @property
    def nodes(self) -> list[str]:
        """Of the workers."""
        return [
            pod["spec"]["nodeName"]
            for name, pod in sorted(self.pods.items())
            if "-worker-" in name and pod["status"]["phase"] == "Running"
        ]


Kind = TypeVar("Kind", bound=Training)


def submitted(
    fleet: Fleet,
    kind: type[Kind],
    retries: int = 2,
    name: str = "llama",
    *,
    keeps_pods: bool = False,
    **spec: Any,
) -> Kind:
    """A job of two ranks with devices on two of three nodes, with its controller."""
    fleet.start("a", "b", "c")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b", "c")
    job = kind(fleet.cluster, fleet.api, name)
    job.annotations[APP_MAX_RETRY_COUNT] = str(retries)
    if keeps_pods:
        job.annotations[KEEP_PODS] = "true"
    job.submit(**spec)
    job.until_running(1)
    return job


def exchanges_one_pod(fleet: Fleet, job: Training, matrix: Matrix) -> None:
    """A node of the job is condemned, and costs one pod: the others run on."""
    bad = job.nodes[1]
    before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in job.pods.values()}
    (leaving,) = [uid for uid, node in before.items() if node == bad]

    began = time.monotonic()
    fleet.machines[bad].log(REPLACE_XID)
    job.until_running(2)
    until(lambda: len(uids := uids_of(job)) == len(before) and leaving not in uids)
    seconds = {"resumed": time.monotonic() - began}

    assert uids_of(job) > before.keys() - {leaving}
    assert bad not in job.nodes
    assert len(job.nodes) == 2
    assert not job.is_suspended
    assert (job.record["hardware_retries"], job.record["app_retries"]) == (1, 0)
    assert [one["node"] for one in job.record["exchanged"]] == [bad]
    (touch,) = fleet.until_recovered(bad).jobs
    assert touch.attempt == 1
    assert touch.resumed_at is not None
    assert ("NodeExchanged", bad) in [(reason, bad) for reason, text in job.events if bad in text]
    record = job.record
    outcome = {
        "job": record["phase"],
        "attempt": record["attempt"],
        "hardware": record["hardware_retries"],
        "application": record["app_retries"],
        "causes": [one["failure"]["reason"] for one in record["attempts"]],
        "rung": "another-node",
        "events": ["NodeExchanged"],
    }
    matrix.record("keep-pods", f"{OPERATORS}/{job.kind}", outcome, seconds)


def uids_of(job: Training) -> set[str]:
    return {pod["metadata"]["uid"] for pod in job.pods.values()}


def resumes_elsewhere(fleet: Fleet, job: Gang) -> None:
    """A node of the job is condemned, and the job goes on without it."""
    bad = job.nodes[1]
    before = {pod["metadata"]["uid"] for pod in job.pods.values()}

    fleet.machines[bad].log(REPLACE_XID)
    job.until_running(2)

    assert before.isdisjoint(pod["metadata"]["uid"] for pod in job.pods.values())
    assert bad not in job.nodes
    assert len(job.nodes) == 2
    assert (job.record["hardware_retries"], job.record["app_retries"]) == (1, 0)
    (touch,) = fleet.until_recovered(bad).jobs
    assert (touch.job, touch.attempt) == (f"{job.kind.lower()}/default/{job.name}", 1)
    assert touch.resumed_at is not None
