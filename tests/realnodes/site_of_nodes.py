"""Holdfast, installed by its chart on a cluster of real nodes, and jobs with real pods on it."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from machine_owner import SECRET, MachineOwner
from training_job import JOBS, TrainingJob

from holdfast.adapters.kubernetes.settings import JobKindName
from holdfast.model.names import RECORD, Labels
from tests.engines.api_connection import Refused
from tests.engines.machine_image import IMAGE
from tests.engines.real_cluster import RealCluster

CHART = Path(__file__).parents[2] / "deploy/helm/holdfast"
NAMESPACE = "holdfast"
HEALTH = Labels().node_health_status
XID = "NVRM: Xid (PCI:0000:b9:00): {}, pid=<unknown>, name=<unknown>, GPU has an error"
REPLACE_XID = XID.format(74)
REBOOT_XID = XID.format(73)
INCIDENTS = "/apis/holdfast.dev/v1/incidents"
HYPERPOD_JOBS = "/apis/sagemaker.amazonaws.com/v1/namespaces/default/hyperpodpytorchjobs"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"

Object = dict[str, Any]


class Site:
    """A cluster of real nodes with Holdfast on it."""

    def __init__(
        self, cluster: RealCluster, owner: MachineOwner, binaries: Mapping[str, Path], folder: Path
    ) -> None:
        self.cluster = cluster
        self.owner = owner
        self.shared = folder / "shared"
        """A file system that all nodes have in common."""

        self.shared.mkdir()
        self.shared.chmod(0o777)
        self._binaries = binaries
        self._values = folder / "values.json"

    # Holdfast

    def values(self) -> Object:
        """Values of the chart: quick enough for tests, and the image that the nodes have."""
        repository, _, tag = IMAGE.rpartition(":")
        secret = {"name": "HOLDFAST_WEBHOOK_SECRET", "value": SECRET}
        webhook = {"url": self.owner.url, "ca_file": "/etc/machines/ca.crt"}
        return {
            "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
            "agent": {"config": {"kmsg": "/host/var/log/kmsg", "logs_only": True}},
            "controller": {
                "config": {
                    "provider": {"replace": "webhook", "webhook": webhook},
                    "nodes": {
                        "max_unavailable": 2,
                        "drain_timeout": "10s",
                        "replacements_per_hour": 1000,  # all tests share the cluster
                        "replacements_per_day": 1000,
                    },
                    "kubernetes": {
                        "read_heartbeats": True,
                        "capture_stacks": True,
                        "job_kinds": list(JobKindName),
                        "check": {"image": IMAGE, "command": ["holdfast", "check", "--help"]},
                    },
                },
                "env": [secret],
                "volumes": [{"name": "machines", "configMap": {"name": "kube-root-ca.crt"}}],
                "volumeMounts": [{"name": "machines", "mountPath": "/etc/machines"}],
            },
        }

    def helm(self, *arguments: str) -> None:
        """Install or upgrade the chart, and wait until its pods are ready."""
        self._values.write_text(json.dumps(self.values()), encoding="utf-8")
        command = (*arguments, "holdfast", str(CHART), "--namespace", NAMESPACE)
        self._run("helm", *command, "--values", str(self._values), "--wait", "--timeout", "2m")

    def uninstall(self) -> None:
        self._run("helm", "uninstall", "holdfast", "--namespace", NAMESPACE, "--wait")

    def kubectl(self, *arguments: str) -> str:
        """What kubectl prints, as the user who may do everything."""
        return self._run("kubectl", *arguments)

    @property
    def kubeconfig(self) -> Path:
        return self.cluster.plane.kubeconfig()

    # Nodes

    def health(self, name: str) -> str | None:
        """The health label of a node."""
        node = self.cluster.node(name)
        return None if node is None else node["metadata"]["labels"].get(HEALTH)

    def phase(self, name: str) -> str | None:
        node = self.cluster.node(name)
        text = ((node or {}).get("metadata", {}).get("annotations") or {}).get(RECORD)
        return None if text is None else str(json.loads(text)["phase"])

    def in_service(self) -> list[str]:
        """Nodes that are Ready and take work."""
        return [
            name
            for name in list(self.cluster.nodes)
            if self.health(name) == "Schedulable" and self.cluster.is_ready(name)
        ]

    def incidents(self, node: str) -> list[Object]:
        """The incidents of a node."""
        found: list[Object] = self.cluster.plane.request("GET", INCIDENTS)["items"]
        return [one for one in found if one["spec"]["node"] == node]

    # Jobs

    def submit(self, name: str, **changes: Any) -> TrainingJob:
        """Submit a job of two ranks; ``changes`` are those of ``TrainingJob.body``."""
        job = self.prepare(name)
        job.submit(**changes)
        return job

    def prepare(self, name: str) -> TrainingJob:
        """A job that is not submitted yet."""
        return TrainingJob(self, name, ranks=2)

    def until(self, condition: Callable[[], object], what: str, timeout_s: float = 300) -> float:
        return self.cluster.until(condition, what, timeout_s)

    def clear(self) -> None:
        """Delete what tests made, give machines power, and wait until all nodes take work again."""
        for collection in (JOBS, HYPERPOD_JOBS, DEPLOYMENTS, BUDGETS):
            policy = {"propagationPolicy": "Background"}
            self.cluster.plane.request("DELETE", collection, policy)
        for node in list(self.cluster.nodes.values()):
            if not node.is_on:
                node.boot()
        for pod in self._list(PODS):
            if pod["spec"].get("nodeName") not in self.cluster.nodes:  # nobody there can end it
                with suppress(Refused):
                    path, now = f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0}
                    self.cluster.plane.request("DELETE", path, now)
        self.until(lambda: not self._list(PODS), "pods to go")
        self.until(
            lambda: set(self.in_service()) == {*self.cluster.nodes}, "all nodes to be in service"
        )

    def pods(self, selector: str, namespace: str = "default") -> list[Object]:
        return self._list(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")

    def _list(self, path: str) -> list[Object]:
        items: list[Object] = self.cluster.plane.request("GET", path)["items"]
        return items

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [self._binaries[program], "--kubeconfig", self.kubeconfig, *arguments],
            check=False,
            capture_output=True,
            encoding="utf-8",
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{self.tell()}"
        return done.stdout

    def tell(self) -> str:
        """What people look at after a failure."""
        commands = (
            ("get", "nodes", "--label-columns", HEALTH),
            ("get", "pods", "--all-namespaces", "--output", "wide"),
            ("-n", "default", "describe", "pods"),
            *self._log_commands(),
            ("get", "incidents"),
            ("-n", NAMESPACE, "logs", "-l", "app.kubernetes.io/component=controller",
             "--prefix", "--tail", "30"),
        )  # fmt: skip
        texts = []
        for command in commands:
            done = subprocess.run(
                [self._binaries["kubectl"], "--kubeconfig", self.kubeconfig, *command],
                check=False, capture_output=True, encoding="utf-8",
            )  # fmt: skip
            texts += [f"$ kubectl {' '.join(command)}", done.stdout + done.stderr]
        return "\n".join([*texts, f"{self.owner.orders}", *self.owner.failures])

    def _log_commands(self) -> Iterator[tuple[str, ...]]:
        """Commands that print the last lines of all containers of jobs, and of those before."""
        for pod in self._list(PODS):
            about = ("-n", "default", "logs", pod["metadata"]["name"], "--tail", "40")
            yield about
            if any(one["restartCount"] for one in pod["status"].get("containerStatuses") or ()):
                yield *about, "--previous"


S = TypeVar("S", bound=Site)


@contextmanager
def installed_site(binaries: Mapping[str, Path], folder: Path, kind: type[S] = Site) -> Iterator[S]:
    """A cluster of four nodes with the chart installed."""
    with (
        RealCluster(binaries, ("node-1", "node-2", "node-3", "node-4")) as cluster,
        MachineOwner(cluster) as owner,
    ):
        site = kind(cluster, owner, binaries, folder)
        site.helm("install", "--create-namespace")
        site.clear()
        yield site
