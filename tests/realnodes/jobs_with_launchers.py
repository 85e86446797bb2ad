"""Jobs of several kinds with ``holdfast launch`` in their pods, whose ranks train nothing."""

import os
import signal
from typing import Any

from operator_jobs import RUNTIMES, processes, training_runtime
from site_of_nodes import Site
from training_job import FIND_MASTER

from holdfast.model.names import Labels
from tests.engines.machine_image import IMAGE

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
{FIND_MASTER}exec holdfast launch --nnodes $NODES --nproc-per-node 1 --lease-timeout 10s \\
    --max-restarts 99 --offender-failures 0 --local-addr $(hostname -i) /shared/train.py
"""

PORT = {"name": "pytorchjob-port", "containerPort": 29400, "hostPort": 29400}
"""Without its name, the operator of PyTorchJobs creates no Service. As a port of the node, it
allows one pod on each node."""

CPU = "250m"
"""As ranks of real jobs have it. Without a request, the kubelet gives a pod 2 of the 1024 shares of
other processes, and on a busy machine its launcher does not run for longer than its lease."""

_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

Object = dict[str, Any]


class LaunchedJob:
    """A job of two nodes."""

    kind: str
    api_version: str
    collection: str
    selector: str
    """Label of its pods that has its name."""

    nodes = "2"
    container = "node"
    """Name of the container that its operator looks for."""

    variables: tuple[Object, ...] = ()
    """Variables of the container that its operator does not set."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.name = name
        self.folder = site.shared / name
        self.folder.mkdir()
        self.folder.chmod(0o777)
        (self.folder / "train.py").write_text(TRAINING, encoding="utf-8")

    def submit(self, *, suspend: bool = False) -> None:
        """Create the job, which is not started with ``suspend``."""
        body = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": self.name},
            "spec": self.spec(self._pod(), suspend=suspend),
        }
        self.site.cluster.plane.request("POST", self.collection, body)

    def spec(self, pod: Object, *, suspend: bool) -> Object:
        """The ``spec`` of its kind."""
        raise NotImplementedError

    def delete(self) -> None:
        """Delete it, with its pods."""
        policy = {"propagationPolicy": "Background"}
        self.site.cluster.plane.request("DELETE", f"{self.collection}/{self.name}", policy)

    @property
    def conditions(self) -> set[str]:
        """Conditions that its operator has set."""
        found = self.site.cluster.plane.request("GET", f"{self.collection}/{self.name}")
        conditions = (found.get("status") or {}).get("conditions") or ()
        return {one["type"] for one in conditions if one["status"] == "True"}

    def _pod(self) -> Object:
        container = {
            "name": self.container,
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sh", "-ec", START],
            "env": [
                {"name": "HOLDFAST_LAUNCH_KEY", "value": "0123456789abcdef"},
                {"name": "NODES", "value": self.nodes},
                {"name": "LAUNCHED", "value": self.name},
                *self.variables,
            ],
            "ports": [PORT],
            "resources": {"requests": {"cpu": CPU}},
            "volumeMounts": [
                {"name": "shared", "mountPath": "/shared"},
                {"name": "agent", "mountPath": "/run/holdfast", "readOnly": True},
            ],
        }
        return {
            "restartPolicy": "OnFailure",
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
        """Its pods by name."""
        found = self.site.pods(f"{self.selector}={self.name}")
        return {pod["metadata"]["name"]: pod for pod in found}

    @property
    def uids(self) -> dict[str, str]:
        """UIDs of its pods by name."""
        return {name: pod["metadata"]["uid"] for name, pod in self.pods.items()}

    @property
    def starts(self) -> dict[str, int]:
        """How often the kubelet has started the container of each pod again."""
        return {
            name: sum(one["restartCount"] for one in pod["status"].get("containerStatuses") or ())
            for name, pod in self.pods.items()
        }

    def phases(self, *pods: str) -> set[str]:
        """Phases of some of its pods."""
        found = self.pods
        return {found[name]["status"]["phase"] for name in pods}

    def round(self, number: int) -> list[str]:
        """Host names of a round's pods by rank, when both run."""
        ranks = [self.folder / f"{number}.{rank}" for rank in range(2)]
        self.site.until(lambda: all(one.exists() for one in ranks), f"round {number}")
        self.site.until(lambda: len(self.printed("RoundStarted")) == number, "its message")
        return [one.read_text(encoding="utf-8") for one in ranks]

    def kill(self, number: int, rank: int) -> None:
        """End a rank of a round with SIGKILL, from outside of its pod."""
        [found] = processes(
            f"LAUNCHED={self.name}", f"HOLDFAST_LAUNCH_ROUND={number}", f"RANK={rank}"
        )
        os.kill(found, signal.SIGKILL)

    def printed(self, reason: str) -> list[str]:
        """What the coordinator has printed for a reason."""
        log = self.site.kubectl("logs", self.coordinator)
        mark = f"holdfast: {reason}: "
        return [line.removeprefix(mark) for line in log.splitlines() if line.startswith(mark)]

    @property
    def coordinator(self) -> str:
        """Name of the pod with node rank 0."""
        [name] = [
            name
            for name, pod in self.pods.items()
            if pod["metadata"]["annotations"].get("batch.kubernetes.io/job-completion-index") == "0"
        ]
        return name


class LaunchedPyTorchJob(LaunchedJob):
    """A master and two workers, of which one stands by."""

    kind = "PyTorchJob"
    api_version = "kubeflow.org/v1"
    collection = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
    selector = "training.kubeflow.org/job-name"
    nodes = "2:3"
    container = "pytorch"

    def spec(self, pod: Object, *, suspend: bool) -> Object:
        """See ``LaunchedJob.spec``."""
        replicas = {
            kind: {
                "replicas": count,
                "restartPolicy": pod["restartPolicy"],
                "template": {"spec": pod},
            }
            for kind, count in (("Master", 1), ("Worker", 2))
        }
        policy = {"cleanPodPolicy": "None", "suspend": suspend}
        return {"pytorchReplicaSpecs": replicas, "runPolicy": policy}

    @property
    def coordinator(self) -> str:
        """See ``LaunchedJob.coordinator``."""
        return f"{self.name}-master-0"


class LaunchedJobSet(LaunchedJob):
    """One indexed Job. It has no variables of the rendezvous, so the pod sets the node rank."""

    kind = "JobSet"
    api_version = "jobset.x-k8s.io/v1alpha2"
    collection = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    selector = "jobset.sigs.k8s.io/jobset-name"
    variables = ({"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},)

    def spec(self, pod: Object, *, suspend: bool) -> Object:
        """See ``LaunchedJob.spec``."""
        job = {
            "completionMode": "Indexed",
            "completions": 2,
            "parallelism": 2,
            "template": {"spec": pod},
        }
        node = {"name": "node", "replicas": 1, "template": {"spec": job}}
        return {"suspend": suspend, "replicatedJobs": [node]}


class LaunchedTrainJob(LaunchedJob):
    """A job of a torch runtime, whose operator sets the node rank."""

    kind = "TrainJob"
    api_version = "trainer.kubeflow.org/v1alpha1"
    collection = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
    selector = "jobset.sigs.k8s.io/jobset-name"

    def submit(self, *, suspend: bool = False) -> None:
        """See ``LaunchedJob.submit``."""
        runtime = training_runtime(self.name, {"spec": self._pod()}, 2)
        self.site.cluster.plane.request("POST", RUNTIMES, runtime)
        super().submit(suspend=suspend)

    def spec(self, pod: Object, *, suspend: bool) -> Object:
        """See ``LaunchedJob.spec``; the pod is that of the runtime."""
        reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime"}
        return {
            "suspend": suspend,
            "runtimeRef": {**reference, "name": self.name},
            "trainer": {"numNodes": 2},
        }

    def delete(self) -> None:
        """See ``LaunchedJob.delete``."""
        super().delete()
        self.site.cluster.plane.request("DELETE", f"{RUNTIMES}/{self.name}")
