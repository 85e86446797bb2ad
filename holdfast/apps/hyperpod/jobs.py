"""PyTorchJobs of a Kubernetes cluster, for HyperPod's commands."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, Final

from holdfast import __version__
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import AlreadyExists, NotFound
from holdfast.adapters.kubernetes.client.kubeconfig import find_server
from holdfast.adapters.kubernetes.client.pod_exec import run_in_pod
from holdfast.apps.hyperpod.job_request import JobRequest
from holdfast.apps.hyperpod.manifest import CONTAINER, manifest_of
from holdfast.apps.hyperpod.port import EXEC_TIME, JobOutput, Json
from holdfast.apps.target import Where
from holdfast.apps.views import not_found
from holdfast.model.errors import ConfigError
from holdfast.model.names import HealthStatus, Labels, PodPhase

_TIME: Final = "creationTimestamp"
_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
_NAME_LABEL: Final = "training.kubeflow.org/job-name"
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_CLUSTER_LABEL: Final = "cluster-name"
_ACCELERATORS: Final = ("nvidia.com/gpu", "aws.amazon.com/neurondevice")
_EXEC_LIMIT: Final = 1 << 20
_LOG_STALL: Final = timedelta(seconds=30)


def connect(where: Where, namespace: str | None) -> "HyperPodJobs":
    """Connect to the cluster that kubectl would use.

    Raises:
        ConfigError: no cluster is configured, or it cannot be used.

    """
    server = find_server(where.kubeconfig, where.context or "")
    api = Api(server, user_agent=f"holdfast/{__version__}", field_manager="holdfast")
    return HyperPodJobs(api, namespace or server.namespace)


class HyperPodJobs:
    """PyTorchJobs of a namespace: a ``HyperPodCluster``."""

    defaults: ClassVar[Mapping[str, str]] = {}
    """See ``HyperPodCluster.defaults``."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self.namespace = namespace
        self._labels = Labels()

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def preview(self, request: JobRequest) -> Json:
        """See ``HyperPodCluster.preview``."""
        return manifest_of(request, self.namespace)

    def submit(self, request: JobRequest) -> str:
        """See ``HyperPodCluster.submit``."""
        try:
            self._api.create(self._folder(), self.preview(request))
        except AlreadyExists:
            raise ConfigError(
                f"job_name: {request.name} already exists in {self.namespace}; cancel it, or "
                "choose another name"
            ) from None
        except NotFound as error:
            raise ConfigError(
                "the cluster has no PyTorchJob resource: install the Kubeflow training operator"
            ) from error
        return f"submitted to the namespace {self.namespace}"

    def jobs(self, selector: str = "", *, everywhere: bool = False) -> list[Json]:
        """See ``HyperPodCluster.jobs``."""
        path = "/apis/kubeflow.org/v1/pytorchjobs" if everywhere else self._folder()
        found = self._api.list(path, {"labelSelector": selector} if selector else None)
        return [
            {
                "Name": job["metadata"]["name"],
                "Namespace": job["metadata"]["namespace"],
                "CreationTime": job["metadata"][_TIME],
                "State": state_of(job),
                "priority": (job["metadata"].get("labels") or {}).get(_PRIORITY, "NA"),
            }
            for job in sorted(found, key=lambda job: str(job["metadata"][_TIME]))
        ]

    def job(self, name: str, *, verbose: bool) -> Json:
        """See ``HyperPodCluster.job``."""
        job = self._one(name)
        metadata = job["metadata"]
        shown = {
            "Name": metadata["name"],
            "Namespace": metadata["namespace"],
            "Label": metadata.get("labels") or {},
            "CreationTimestamp": metadata[_TIME],
            "Status": job.get("status") or {},
        }
        if verbose:
            shown |= {
                "Kind": job["kind"],
                "ApiVersion": job["apiVersion"],
                "Metadata": {key: metadata.get(key) for key in ("uid", "resourceVersion")},
                "Annotations": metadata.get("annotations") or {},
                "Spec": job["spec"],
            }
        return shown

    def cancel(self, name: str) -> None:
        """See ``HyperPodCluster.cancel``: deletes the job and its pods."""
        job = self._one(name)
        self._api.delete(
            f"{self._folder()}/{name}", uid=job["metadata"]["uid"], propagation="Foreground"
        )

    def suspend(self, name: str, *, is_suspended: bool) -> None:
        """See ``HyperPodCluster.suspend``."""
        self._one(name)
        self._api.patch(
            f"{self._folder()}/{name}", {"spec": {"runPolicy": {"suspend": is_suspended}}}
        )

    def pods(self, name: str) -> list[Json]:
        """See ``HyperPodCluster.pods``."""
        self._one(name)
        params = {"labelSelector": f"{_NAME_LABEL}={name}"}
        found = self._api.list(f"/api/v1/namespaces/{self.namespace}/pods", params)
        return [
            {
                "PodName": pod["metadata"]["name"],
                "Namespace": pod["metadata"]["namespace"],
                "Status": (pod.get("status") or {}).get("phase", ""),
                "CreationTime": pod["metadata"][_TIME],
                "NodeName": pod["spec"].get("nodeName", ""),
            }
            for pod in sorted(found, key=lambda pod: str(pod["metadata"]["name"]))
        ]

    def log(self, name: str, pod: str) -> Iterator[bytes]:
        """See ``HyperPodCluster.log``."""
        path = self._pod(name, pod)
        _, opened, answer = self._api.opened(f"{path}/log", {"container": CONTAINER}, _LOG_STALL)
        try:
            while piece := answer.read1(1 << 16):
                yield piece
        finally:
            answer.close()
            opened.close()

    def run(self, name: str, pod: str, command: Sequence[str]) -> JobOutput:
        """See ``HyperPodCluster.run``."""
        path = self._pod(name, pod)
        done = run_in_pod(self._api, path, CONTAINER, command, within=EXEC_TIME, limit=_EXEC_LIMIT)
        return JobOutput(done.text, done.error)

    def clusters(self) -> list[Json]:
        """See ``HyperPodCluster.clusters``."""
        groups: defaultdict[tuple[str, str, str, str], list[Json]] = defaultdict(list)
        for node in self._api.list("/api/v1/nodes"):
            labels = node["metadata"].get("labels") or {}
            health = labels.get(self._labels.node_health_status)
            if health is not None:
                cluster = labels.get(f"{self._labels.prefix}/{_CLUSTER_LABEL}", "default")
                deep = labels.get(self._labels.deep_health_check_status, "N/A")
                groups[cluster, labels.get(_INSTANCE_TYPE, ""), health, deep].append(node)
        used = self._used() if groups else Counter()
        rows: defaultdict[str, list[Json]] = defaultdict(list)
        for (cluster, kind, health, deep), nodes in sorted(groups.items()):
            free = sum(max(0, _devices(node) - used[node["metadata"]["name"]]) for node in nodes)
            rows[cluster].append(
                {
                    "InstanceType": kind,
                    "TotalNodes": len(nodes),
                    "AcceleratorDevicesAvailable": free
                    if health == HealthStatus.SCHEDULABLE
                    else 0,
                    "NodeHealthStatus": health,
                    "DeepHealthCheckStatus": deep,
                }
            )
        return [{"Cluster": name, "Instances": found} for name, found in rows.items()]

    def _used(self) -> Counter[str]:
        """Return ``node -> accelerators that its pods use``."""
        found: Counter[str] = Counter()
        for pod in self._api.list("/api/v1/pods", {"fieldSelector": "spec.nodeName!="}):
            if (pod.get("status") or {}).get("phase") in (PodPhase.SUCCEEDED, PodPhase.FAILED):
                continue
            for container in pod["spec"]["containers"]:
                limits = (container.get("resources") or {}).get("limits") or {}
                found[pod["spec"]["nodeName"]] += sum(int(limits.get(k, 0)) for k in _ACCELERATORS)
        return found

    def _one(self, name: str) -> Json:
        try:
            return self._api.get(f"{self._folder()}/{name}")
        except NotFound:
            raise not_found.NotFound(
                f"job {name} not found in namespace {self.namespace}; see holdfast hyperpod "
                "list-jobs --all-namespaces"
            ) from None

    def _pod(self, name: str, pod: str) -> str:
        names = [one["PodName"] for one in self.pods(name)]
        if pod not in names:
            raise not_found.NotFound(
                f"{name}: pod {pod} not found; its pods: {', '.join(names) or 'none at the moment'}"
            )
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod}"

    def _folder(self) -> str:
        return f"/apis/kubeflow.org/v1/namespaces/{self.namespace}/pytorchjobs"


def state_of(job: Json) -> str:
    """Return the last true condition of a job; ``Pending`` before any."""
    true_conditions = [
        one["type"]
        for one in (job.get("status") or {}).get("conditions") or ()
        if one.get("status") == "True"
    ]
    return str(true_conditions[-1]) if true_conditions else PodPhase.PENDING


def _devices(node: Json) -> int:
    found = (node.get("status") or {}).get("allocatable") or {}
    return sum(int(found.get(name, 0)) for name in _ACCELERATORS)
