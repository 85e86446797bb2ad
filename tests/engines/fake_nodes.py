"""Kubernetes nodes without machines, for tests on a control plane that has no kubelets.

``FakeKubelets`` writes ``Node`` objects and does what their kubelets would: pods bound to a node
start to run, deleted pods vanish, leases are renewed. A test can let a kubelet hang, which real
ones do when it matters most. For thousands of nodes take KWOK, which ``ControlPlane`` can start.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Final, Self

import httpx2
from lightkube import Client, KubeConfig
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.core_v1 import NodeSpec, Taint
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Node

from holdfast.adapters.kubernetes.client.api import Api, Patch
from holdfast.adapters.kubernetes.client.kubeconfig import read_kubeconfig
from holdfast.model.errors import BackendError
from holdfast.model.names import PodPhase
from tests.engines.pod_watch import Json, PodWatch

_LEASES: Final = "kube-node-lease"
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_TICK: Final = timedelta(milliseconds=100)
_HEARTBEAT: Final = timedelta(seconds=1)
"""Ten times as often as a kubelet's, so that tests may set a short grace period; the default."""

_TIMEOUT: Final = timedelta(seconds=60)
_CALL_TIMEOUT: Final = timedelta(seconds=5)
"""Of a call about a pod, which is repeated at the next tick."""

_CAPACITY: Final = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")


class FakeKubelets:
    """Nodes and their kubelets; a context manager, at whose end all kubelets hang.

    Args:
        kubeconfig: of a user who may do everything.
        heartbeat: between two renewals of a lease.
        tick: how soon they see what is wanted of them; longer where there are a hundred.

    """

    def __init__(
        self, kubeconfig: Path, *, heartbeat: timedelta = _HEARTBEAT, tick: timedelta = _TICK
    ) -> None:
        config = KubeConfig.from_file(kubeconfig)
        self._client = Client(config, trust_env=False)
        self._heartbeat_s = heartbeat.total_seconds()
        self._tick_s = tick.total_seconds()
        self._lock = Lock()
        self._alive: frozenset[str] = frozenset()
        self._over = Event()
        self._api = Api(
            read_kubeconfig([kubeconfig]),
            user_agent="kubelets",
            field_manager="kubelets",
            timeout=_CALL_TIMEOUT,
        )
        self._pods = PodWatch(self._api)
        self._done: set[tuple[str, str]] = set()
        """UIDs and resource versions of pods that were handled; the watch has the result."""

        self._thread = Thread(target=self._play, args=(config,), name="kubelets", daemon=True)

    def __enter__(self) -> Self:
        self._pods.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._pods.close()
        self._api.close()
        self._client.close()

    def join(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        provider_id: str | None = None,
        taints: Sequence[Taint] = (),
    ) -> Node:
        """A new machine registers; returns its node when the scheduler may use it.

        Args:
            name: of the node.
            labels: beside that of its host name.
            annotations: of the node.
            provider_id: of the machine at its provider, such as ``aws:///us-east-1a/i-0abc``.
            taints: of the node.

        """
        metadata = ObjectMeta(
            name=name,
            labels={"kubernetes.io/hostname": name, **(labels or {})},
            annotations=dict(annotations or {}),
        )
        self._client.create(
            Node(metadata=metadata, spec=NodeSpec(providerID=provider_id, taints=list(taints)))
        )
        self.reboot(name)
        deadline = time.monotonic() + _TIMEOUT.total_seconds()
        while _NOT_READY in _taints(node := self._client.get(Node, name)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"node {name} keeps the taint {_NOT_READY}: no controllers run")
            time.sleep(_TICK.total_seconds() / 5)
        return node

    def reboot(self, name: str) -> None:
        """The machine comes up anew, with another boot id; its kubelet works."""
        self._client.patch(Node.Status, name, {"status": _node_status(str(uuid.uuid4()))})
        self.resume(name)

    def leave(self, name: str) -> None:
        """The machine is terminated, and its cloud's controller removes the node."""
        self.hang(name)
        self._client.delete(Node, name)

    def hang(self, *names: str) -> None:
        """These kubelets do nothing more: deleted pods stay ``Terminating``, leases expire."""
        with self._lock:
            self._alive -= set(names)

    def resume(self, *names: str) -> None:
        """These kubelets work, again or from now on, and catch up."""
        with self._lock:
            self._alive |= set(names)

    def finish(
        self, pod: str, *, namespace: str = "default", exit_code: int = 0, message: str = ""
    ) -> None:
        """All containers of a pod end with ``exit_code``, and are not started again.

        ``message`` is what they left as their termination message.
        """
        ended = {"terminated": {"exitCode": exit_code, "message": message}}
        path = _path(namespace, pod)
        status = {
            "phase": PodPhase.FAILED if exit_code else PodPhase.SUCCEEDED,
            "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}],
            "containerStatuses": _containers(self._api.get(path), ended),
        }
        self._api.patch(f"{path}/status", {"status": status}, Patch.STRATEGIC)

    def _play(self, config: KubeConfig) -> None:
        client = Client(config, trust_env=False)
        next_heartbeat = 0.0
        while not self._over.wait(self._tick_s):
            # A kubelet outlives an outage of the API server, and none hangs in the middle of this.
            with self._lock, suppress(httpx2.HTTPError):
                self._follow()
                if time.monotonic() >= next_heartbeat:
                    _renew(client, self._alive)
                    next_heartbeat = time.monotonic() + self._heartbeat_s
        client.close()

    def _follow(self) -> None:
        """Handle the new states of the pods on nodes whose kubelets work."""
        known = {(pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]): pod
                 for pod in self._pods.pods}  # fmt: skip
        self._done &= known.keys()
        for key, pod in known.items():
            if pod["spec"]["nodeName"] in self._alive and key not in self._done:
                with suppress(BackendError):  # once more at the next tick, if it is still there
                    self._handle(pod)
                    self._done.add(key)

    def _handle(self, pod: Json) -> None:
        """The UID distinguishes it from a later pod of the same name."""
        meta = pod["metadata"]
        path, uid = _path(meta["namespace"], meta["name"]), meta["uid"]
        if "deletionTimestamp" in meta:
            self._api.delete(path, uid=uid, grace=0)
        elif pod["status"].get("phase") == PodPhase.PENDING:
            change = {"metadata": {"uid": uid}, "status": _running(pod)}
            self._api.patch(f"{path}/status", change, Patch.STRATEGIC)


def _renew(client: Client, nodes: frozenset[str]) -> None:
    for name in nodes:
        metadata = ObjectMeta(name=name, namespace=_LEASES)
        spec = LeaseSpec(holderIdentity=name, leaseDurationSeconds=40, renewTime=_now())
        client.apply(Lease(metadata=metadata, spec=spec), field_manager="kubelet", force=True)


def _path(namespace: str, pod: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{pod}"


def _running(pod: Json) -> dict[str, Any]:
    """Status that a kubelet reports of a pod whose containers have just started."""
    now = _now().isoformat()
    return {
        "phase": PodPhase.RUNNING,
        "startTime": now,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": _containers(pod, {"running": {"startedAt": now}}),
    }


def _containers(pod: Json, state: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "restartCount": 0,
            "ready": "running" in state,
            "state": state,
        }
        for container in pod["spec"]["containers"]
    ]


def _node_status(boot_id: str) -> dict[str, Any]:
    """Status that a kubelet reports of its node as it starts."""
    now = _now().isoformat()
    conditions = {"Ready": "True", **dict.fromkeys(_PRESSURES, "False")}
    return {
        "capacity": _CAPACITY,
        "allocatable": _CAPACITY,
        "nodeInfo": {
            "bootID": boot_id,
            "machineID": "",
            "systemUUID": "",
            "kernelVersion": "6.1.0",
            "osImage": "fake",
            "containerRuntimeVersion": "fake://1",
            "kubeletVersion": "v1.36.0",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": "Fake",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, status in conditions.items()
        ],
    }


def _taints(node: Node) -> list[str]:
    return [taint.key for taint in (node.spec and node.spec.taints) or ()]


def _now() -> datetime:
    return datetime.now(UTC)
