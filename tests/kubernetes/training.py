"""PyTorchJobs on a real cluster, as people submit them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from controlled import GROUP
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import NotFound
from holdfast.model.names import JOB_RECORD, Labels

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PODS = "/api/v1/namespaces/default/pods"
ON = {Labels().enable_job_auto_resume: "true", Labels().job_max_retry_count: "2"}


@dataclass
class Training:
    """One job."""

    collection: ClassVar[str] = JOBS
    kind: ClassVar[str] = "PyTorchJob"
    pod_label: ClassVar[str] = "training.kubeflow.org/job-name"
    restarts_in_place: ClassVar[bool] = True
    """Whether the kubelet starts a container again that has failed."""

    cluster: Cluster
    api: Api
    name: str = "llama"
    workers: int = 1
    annotations: dict[str, str] = field(default_factory=lambda: dict(ON))

    labels: dict[str, str] = field(default_factory=dict)
    container: dict[str, Any] = field(default_factory=dict)
    """What the container of each of its pods has beside."""

    group: str = ""
    """Where its pods have to go; empty: anywhere."""

    def submit(self, **spec: Any) -> None:
        container = {
            "name": "pytorch",
            "image": "none",
            "resources": {"limits": {"nvidia.com/gpu": 8}},
            **self.container,
        }
        pods = {
            "terminationGracePeriodSeconds": 10,
            "nodeSelector": {Labels().node_health_status: "Schedulable"},
            "containers": [container],
        }
        replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": pods}}
        body = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {
                "name": self.name,
                "annotations": self.annotations,
                "labels": self.labels,
            },
            "spec": {
                "pytorchReplicaSpecs": {
                    "Master": replica,
                    "Worker": {**replica, "replicas": self.workers},
                },
                **spec,
            },
        }
        self.api.create(JOBS, self.placed(body))

    def placed(self, body: dict[str, Any]) -> dict[str, Any]:
        """The job with its pods kept to its group."""
        chosen = {Labels().node_health_status: "Schedulable"}
        wanted = {**chosen, GROUP: self.group} if self.group else chosen
        return json.loads(json.dumps(body), object_hook=lambda d: wanted if d == chosen else d)

    @property
    def job(self) -> dict[str, Any]:
        return self.api.get(f"{JOBS}/{self.name}")

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.job["metadata"].get("annotations") or {}).get(JOB_RECORD, "{}"))

    @property
    def phase(self) -> str | None:
        return self.record.get("phase")

    @property
    def conditions(self) -> list[str]:
        found = (self.job.get("status") or {}).get("conditions") or ()
        return [one["type"] for one in found if one["status"] == "True"]

    @property
    def is_suspended(self) -> bool:
        return (self.job["spec"].get("runPolicy") or {}).get("suspend") is True

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        return {
            pod["metadata"]["name"]: pod
            for pod in self.api.list(PODS)
            if pod["metadata"]["labels"].get("training.kubeflow.org/job-name") == self.name
        }

    def owns(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is of it."""
        return labels.get(self.pod_label) == self.name

    @property
    def nodes(self) -> list[str]:
        """Where pods run, in the order of their ranks."""
        return [
            pod["spec"]["nodeName"]
            for _, pod in sorted(self.pods.items())
            if pod["status"]["phase"] == "Running"
        ]

    @property
    def events(self) -> list[tuple[str, str]]:
        """Reason and message of what was told on the job by the controller."""
        folder = "/api/v1/namespaces/default/events"
        found = [
            one
            for one in self.api.list(folder)
            if one["involvedObject"]["name"] == self.name
            and one["source"].get("component") == "holdfast-controller"
        ]
        return [(one["reason"], one["message"]) for one in found]

    def environment(self, pod: str) -> dict[str, str]:
        container = self.pods[pod]["spec"]["containers"][0]
        return {one["name"]: one.get("value", "") for one in container["env"]}

    def until_running(self, attempt: int) -> None:
        def is_running() -> bool:
            record = self.record  # one state of it, not parts of two
            return (record.get("phase"), record.get("attempt")) == ("running", attempt)

        until(is_running)

    def until_gone(self) -> None:
        def is_gone() -> bool:
            try:
                return not self.job
            except NotFound:
                return True

        until(is_gone)

    def container_fails(self, pod: str, code: int, reason: str = "Error") -> None:
        """The kubelet starts a container again that has ended."""
        found = self.pods[pod]
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        (status,) = found["status"]["containerStatuses"]
        status["restartCount"] += 1
        ended = {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}
        status["lastState"] = {"terminated": ended}
        self.api.patch(f"{PODS}/{pod}/status", {"status": {"containerStatuses": [status]}})
