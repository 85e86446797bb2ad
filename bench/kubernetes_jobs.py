"""Jobs among 5,000 nodes on a real API server: what the controller takes of a restart."""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import needs
from bench.agent import resident_mib
from bench.disturbed_run import percentile
from bench.figure import Figure
from bench.kubernetes_scale import Fleet
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import NotFound
from holdfast.adapters.kubernetes.client.server import Server
from holdfast.model.names import JOB_RECORD, Labels
from tests.engines.control_plane import CONTROLLERS, PROGRAMS, ControlPlane
from tools.control_plane import module_files, provide

NODES = 5_000
JOBS = 500
RANKS = 7
SMALL, ROUNDS = 64, 20
LARGE, LARGE_ROUNDS = 1_000, 2
WRITERS = 8
PODS = "/api/v1/namespaces/default/pods"
PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
TIMEOUT = timedelta(minutes=2)
GRACE_S = 300
"""Longer than the bench takes to delete the pods, which is not the controller's doing."""


def lacks() -> str:
    """What of a control plane cannot be had here."""
    return needs.control_plane("kubectl")


def run(*, quick: bool = False) -> list[Figure]:
    """Let a controller take over 500 jobs, then break nodes under one more, again and again.

    The operator is played: it ends and makes pods as fast as the API server lets it. Its part is
    left out of the figures, and so is that of a scheduler; the pause before a verdict is not.
    """
    nodes, jobs = (NODES // 10, JOBS // 10) if quick else (NODES, JOBS)
    large = LARGE // 10 if quick else LARGE
    slow = ["--node-monitor-period=5s"]  # its default; ours for tests would fill a core
    with (
        ControlPlane(provide(*PROGRAMS, "kubectl"), flags={CONTROLLERS: slow}) as plane,
        tempfile.TemporaryDirectory() as folder,
    ):
        fleet = Fleet(plane, Path(folder))
        names = [f"n{number}" for number in range(nodes)]
        fleet.create(names)
        operator = Operator(plane, fleet, names)
        for number in range(jobs):
            operator.submit(f"job-{number}", RANKS)
        with fleet.controller() as controller:
            operator.until(lambda: operator.count_running() == jobs)
            resident = resident_mib(controller.pid)
            operator.submit("small", SMALL)
            small = sorted(operator.restart("small") for _ in range(ROUNDS))
            operator.remove("small")
            operator.submit("large", large)
            most = max(operator.restart("large") for _ in range(LARGE_ROUNDS))
            resident = max(resident, resident_mib(controller.pid))
    count = f"{jobs} jobs, {nodes:,} nodes"
    return [
        Figure(name=f"{count}: resident memory", value=resident, unit="MiB", goal=200),
        Figure(
            name=f"{SMALL} pods: controller's share of a restart, p50",
            value=percentile(small, 0.5), unit="s", goal=1,
        ),
        Figure(
            name=f"{SMALL} pods: controller's share of a restart, p99",
            value=percentile(small, 0.99), unit="s", goal=1,
        ),
        Figure(
            name=f"{large:,} pods: controller's share of a restart",
            value=most, unit="s", goal=15,
        ),
    ]  # fmt: skip


@dataclass
class Operator:
    """Plays the training operator, the scheduler and the kubelets."""

    plane: ControlPlane
    fleet: Fleet
    free: list[str]
    placed: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plane = self.plane
        server = Server(url=plane.url, ca_file=plane.certificate, token=lambda: plane.token)
        self.api = Api(server, user_agent="bench", field_manager="bench")
        files = module_files("training-operator", "github.com/kubeflow/training-operator")
        self.fleet.apply(files / "manifests/base/crds/kubeflow.org_pytorchjobs.yaml")
        self.until(self._is_served)

    def submit(self, name: str, ranks: int) -> None:
        """A job that runs."""
        self.api.create(PYTORCH_JOBS, _job(name, ranks))
        self._start(name, ranks)

    def remove(self, name: str) -> None:
        """A job that nobody needs any more."""
        self._stop(name)
        self.free += self.placed.pop(name)
        self.api.delete(f"{PYTORCH_JOBS}/{name}")

    def count_running(self) -> int:
        """How many jobs the controller has taken over."""
        jobs = self.api.list(PYTORCH_JOBS)
        return sum(_record(job).get("phase") == "running" for job in jobs)

    def restart(self, name: str) -> float:
        """Break a node of a job; seconds until the restart is issued, without the operator's."""
        path = f"{PYTORCH_JOBS}/{name}"
        self.until(lambda: _record(self.api.get(path)).get("phase") == "running")
        nodes = self.placed[name]
        job = self.api.get(path)
        params: dict[str, str | int] = {
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": job["metadata"]["resourceVersion"],
        }
        with self.api.watch(PYTORCH_JOBS, params) as watch:
            began = time.perf_counter()
            self.fleet.fault(nodes[0])
            _await(watch, is_suspended=True)
            stopped = time.perf_counter()
            self._stop(name)
            self._set_condition(name, "Suspended")
            gone = time.perf_counter()
            _await(watch, is_suspended=False)
            share = (stopped - began) + (time.perf_counter() - gone)
        self.free += nodes[1:]  # the first is out of service
        self._start(name, len(nodes))
        return share

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds."""
        deadline = time.monotonic() + TIMEOUT.total_seconds()
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("the controller does not take over or restart jobs")
            time.sleep(0.1)

    def _is_served(self) -> bool:
        try:
            return list(self.api.list(PYTORCH_JOBS)) == []
        except NotFound:
            return False

    def _start(self, name: str, ranks: int) -> None:
        self._set_condition(name, "Running")
        uid = self.api.get(f"{PYTORCH_JOBS}/{name}")["metadata"]["uid"]
        nodes = self.placed[name] = [self.free.pop(0) for _ in range(ranks)]
        pods = [_pod(name, uid, rank, node) for rank, node in enumerate(nodes)]
        self._at_once(self._run, pods)

    def _stop(self, name: str) -> None:
        names = [f"{name}-worker-{rank}" for rank in range(len(self.placed[name]))]
        self._at_once(lambda pod: self.api.delete(f"{PODS}/{pod}", grace=0), names)

    def _run(self, pod: dict[str, Any]) -> None:
        self.api.create(PODS, pod)
        running = {"state": {"running": {"startedAt": _stamp()}}, "ready": True}
        container = {"name": "pytorch", "image": "none", "imageID": "", "restartCount": 0}
        status = {"phase": "Running", "containerStatuses": [{**container, **running}]}
        self.api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": status})

    def _set_condition(self, name: str, condition: str) -> None:
        """How the job is, in the words of the operator."""
        reported = [
            {"type": kind, "status": str(kind == condition), "reason": kind, "message": ""}
            for kind in ("Running", "Suspended")
        ]
        status: dict[str, Any] = {"conditions": reported, "replicaStatuses": {}}
        status["startTime"] = _stamp() if condition == "Running" else None
        self.api.patch(f"{PYTORCH_JOBS}/{name}/status", {"status": status})

    def _at_once(self, act: Callable[[Any], None], items: Sequence[Any]) -> None:
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(act, items))


def _await(watch: Any, *, is_suspended: bool) -> None:
    for event in watch:
        if event["object"]["spec"]["runPolicy"].get("suspend", False) is is_suspended:
            return


def _record(job: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(job["metadata"]["annotations"].get(JOB_RECORD, "{}"))
    return record


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _job(name: str, ranks: int) -> dict[str, Any]:
    """As large as that of a team with a handful of variables and mounts."""
    labels = Labels()
    requested = {labels.enable_job_auto_resume: "true", labels.job_max_retry_count: "1000"}
    env = [{"name": f"SETTING_{one}", "value": "a value of some length"} for one in range(20)]
    container = {
        "name": "pytorch",
        "image": "none",
        "env": env,
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    template = {"spec": {"terminationGracePeriodSeconds": GRACE_S, "containers": [container]}}
    worker = {"replicas": ranks, "restartPolicy": "OnFailure", "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": requested},
        "spec": {
            "runPolicy": {"suspend": False},
            "pytorchReplicaSpecs": {"Worker": worker},
        },
    }


def _pod(job: str, uid: str, rank: int, node: str) -> dict[str, Any]:
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": job,
        "uid": uid,
        "controller": True,
    }
    prefix = "training.kubeflow.org"
    labels = {
        f"{prefix}/operator-name": "pytorchjob-controller",
        f"{prefix}/job-name": job,
        f"{prefix}/replica-type": "worker",
        f"{prefix}/replica-index": str(rank),
    }
    resources = {"limits": {"nvidia.com/gpu": 8}}
    return {
        "metadata": {"name": f"{job}-worker-{rank}", "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "pytorch", "image": "none", "resources": resources}],
        },
    }
