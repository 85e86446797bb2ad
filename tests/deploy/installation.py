"""The plain manifests on a real control plane, and clients with the accounts that they make."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chart import DEPLOY, HELM_CHART

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.server import Server
from tests.engines.control_plane import FOR_GO, ControlPlane

NODES = ("node-a", "node-b")
NAMESPACE = "holdfast"
TIMEOUT_S = 180


class Installation:
    """Holdfast on a cluster of two nodes. No kubelet runs: its pods are bound and never start."""

    def __init__(self, plane: ControlPlane, kubectl: Path) -> None:
        self.plane = plane
        self._program = kubectl

    def install(self) -> None:
        for name in NODES:
            self.add_node(name)
        self.kubectl("apply", "--server-side", "--filename", str(HELM_CHART / "crds"))
        manifests = str(DEPLOY / "kubernetes" / "holdfast.yaml")
        self.kubectl("apply", "--validate=strict", "--filename", manifests)
        until(self._policies_are_in_force)  # a moment after they were stored

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints, as the user who may do everything."""
        done = self._run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def add_node(self, name: str) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        node["metadata"]["labels"] = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name}
        node["spec"] = {"providerID": f"aws:///us-west-2a/i-{name}"}
        self.plane.request("POST", "/api/v1/nodes", node)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}
        status = {
            "conditions": [ready],
            "capacity": {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"},
        }
        self.plane.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})

    def node(self, name: str) -> dict[str, Any]:
        node: dict[str, Any] = self.plane.request("GET", f"/api/v1/nodes/{name}")
        return node

    def change_node(self, name: str, change: dict[str, Any]) -> None:
        self.plane.request("PATCH", f"/api/v1/nodes/{name}", change)

    def agent(self, node: str) -> Api:
        """The agent of a node, with the token that its pod has."""
        until(lambda: node in self._agent_pods())
        return self.client(NAMESPACE, "holdfast-agent", pod=self._agent_pods()[node])

    def agent_nowhere(self) -> Api:
        """Somebody with a token of the agents that is bound to no pod."""
        return self.client(NAMESPACE, "holdfast-agent")

    def controller(self) -> Api:
        return self.client(NAMESPACE, "holdfast-controller")

    def client(self, namespace: str, account: str, pod: str | None = None) -> Api:
        """What a service account may do, if need be with a token that is bound to a pod."""
        token = self.plane.service_account_token(namespace, account, pod=pod)
        server = Server(url=self.plane.url, ca_file=self.plane.certificate, token=lambda: token)
        return Api(server, user_agent="tests", field_manager="tests")

    def _agent_pods(self) -> dict[str, str]:
        """Node to the name of its agent's pod."""
        path = (
            f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/component=agent"
        )
        pods = self.plane.request("GET", path)["items"]
        return {pod["spec"].get("nodeName"): pod["metadata"]["name"] for pod in pods}

    def _policies_are_in_force(self) -> bool:
        agent = f"system:serviceaccount:{NAMESPACE}:holdfast-agent"
        trial = ("label", "node", NODES[0], "a=b", "--as", agent, "--dry-run=server")
        return "may change only its own Node" in self._run(*trial).stderr

    def _run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, "--kubeconfig", self.plane.kubeconfig(), *arguments],
            check=False,
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, **FOR_GO},
            input=stdin,
        )


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)
