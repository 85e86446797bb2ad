"""Holdfast from its chart on real Kubernetes nodes under disturbances.

Pods of Holdfast and of the job are real. A killed part is a pod that is deleted without grace: the
kubelet sends SIGKILL, and starts no container after a backoff that would make a node silent. All
requests of Holdfast pass a proxy, which loses some of them and of the answers while it disturbs.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from leaders import leader
from machine_owner import MachineOwner
from site_of_nodes import INCIDENTS, NAMESPACE, REPLACE_XID, Site, installed_site
from unreliable_proxy import unreliable_proxy

from holdfast.kit.processes import descendants, send
from holdfast.model.errors import BackendError
from holdfast.model.names import JOB_RECORD
from tests.chaos.control_plane import CONTROL_PLANE, disturbed
from tests.chaos.schedules import Broken, Disturbance, Kind, Victim
from tests.engines.real_cluster import REAL_PROGRAMS, RealCluster
from tests.engines.real_node import RealNode

BOTH = (Victim.CONTROLLER, Victim.AGENT)
KINDS: Mapping[Kind, tuple[Victim, ...]] = {
    Kind.KILL: (*BOTH, *CONTROL_PLANE),
    Kind.STOP: (*BOTH, *CONTROL_PLANE),
    Kind.LONG_STOP: CONTROL_PLANE,
    Kind.FULL_DISK: (Victim.ETCD,),
    Kind.NO_NETWORK: (Victim.NODE,),
    Kind.SLOW_NETWORK: (Victim.NODE,),
    Kind.LOST_PACKETS: (Victim.NODE,),
    Kind.SLOW: (Victim.ETCD,),
    Kind.UNRELIABLE: (Victim.API_SERVER,),
}
NEEDED = (*REAL_PROGRAMS, "kubectl", "helm")
"""Programs of ``tools/control_plane.py``."""

TIMEOUT_S = 240.0
"""A machine that runs four nodes on two processors is busy."""


class ChaosSite(Site):
    """A site whose Holdfast finds the API server behind a proxy."""

    def __init__(
        self, cluster: RealCluster, owner: MachineOwner, binaries: Mapping[str, Path], folder: Path
    ) -> None:
        super().__init__(cluster, owner, binaries, folder)
        self.stack = ExitStack()
        self.proxy = self.stack.enter_context(
            unreliable_proxy(cluster.plane, folder, seed=0, host=cluster.network.host)
        )

    def values(self) -> dict[str, Any]:
        found = super().values()
        host, port = self.proxy.server.server_address[:2]
        known = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
        environment = [{"name": name, "value": value} for name, value in known.items()]
        found["controller"]["env"] += environment
        found["agent"]["env"] = environment
        return found


class NodesUnderChaos:
    """A ``Subject``: four nodes, two of them with an indexed Job that runs until ``finish``."""

    kinds = KINDS

    def __init__(self, binaries: Mapping[str, Path], folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> "NodesUnderChaos":
        with ExitStack() as stack:
            site = installed_site(self._binaries, self._folder, ChaosSite)
            self._site = stack.enter_context(site)
            stack.enter_context(self._site.stack)
            self._job = self._site.submit("llama")
            self._job.until_training(1)
            self._places = self._job.places
            self._until("the job runs", lambda: self._record.get("phase") == "running")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def apply(self, one: Disturbance) -> None:
        with self._disturbed(one):
            time.sleep(one.seconds)

    def check(self) -> None:
        self._until("all nodes are in service, with an agent each and a leader", self._is_at_work)
        before = self._job.steps(1)
        self._until("the job goes on", lambda: self._has_gone_on(before))
        if self._site.owner.orders or self._incidents():
            raise Broken(f"a repair: {self._site.owner.orders} {self._incidents()}")
        if self._job.has_overlapped:
            raise Broken("two attempts of the job ran at the same time")
        record = self._record
        if record["attempt"] != 1 or self._job.places != self._places:
            raise Broken(f"the job was restarted: {record}, on {self._job.places}")

    def finish(self) -> None:
        bad = min(self._places.values())
        self._site.cluster.nodes[bad].log(REPLACE_XID)
        self._until("a real fault is repaired", lambda: self._site.owner.orders)
        self._until("the job runs elsewhere", lambda: len(self._job.steps(2)) == self._job.ranks)
        orders = {(one.action, one.node) for one in self._site.owner.orders}
        if orders != {("replace", bad)} or bad in self._job.places.values():
            raise Broken(f"orders {orders}, only {bad} is broken; {self._job.places}")
        self._job.finish()

    @property
    def _record(self) -> dict[str, Any]:
        """What the controller has written of the job; empty while it has not."""
        found: dict[str, Any] = json.loads(
            self._job.job["metadata"]["annotations"].get(JOB_RECORD, "{}")
        )
        return found

    def _disturbed(self, one: Disturbance) -> AbstractContextManager[None]:
        if one.victim in CONTROL_PLANE:
            return disturbed(self._site.cluster.plane, self._site.proxy, one)
        return self._node_disturbed(one)

    @contextmanager
    def _node_disturbed(self, one: Disturbance) -> Iterator[None]:
        network, node = self._site.cluster.network, self._node(one)
        match one.kind:
            case Kind.KILL:
                self._kill(one)
                yield
            case Kind.STOP:
                pids = self._pids(one)
                for pid in pids:
                    send(pid, signal.SIGSTOP)
                yield
                for pid in pids:
                    send(pid, signal.SIGCONT)
            case Kind.NO_NETWORK:
                network.cut(node)
                yield
                network.restore(node)
            case Kind.SLOW_NETWORK:
                with network.slow(node):
                    yield
            case Kind.LOST_PACKETS:
                with network.lossy(node):
                    yield
            case _:
                raise ValueError(one.kind)

    def _node(self, one: Disturbance) -> RealNode:
        """The node of the leader, or one by number."""
        nodes = self._site.cluster.nodes
        if one.victim is Victim.CONTROLLER:
            self._until("a leader", lambda: leader(self._site))
            return nodes[leader(self._site)["node"]]
        return nodes[sorted(nodes)[one.number % len(nodes)]]

    def _kill(self, one: Disturbance) -> None:
        node = self._node(one).name
        for pod in self._pods(one.victim):
            if pod["spec"].get("nodeName") == node:
                path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
                now = {"gracePeriodSeconds": 0}
                self._site.cluster.plane.request("DELETE", path, now)

    def _pids(self, one: Disturbance) -> list[int]:
        """Processes of a part of Holdfast on its node."""
        words = f"/holdfast\0{one.victim}\0".encode()
        found = []
        for pid in descendants(self._node(one).pid):
            path = Path(f"/proc/{pid}/cmdline")
            if path.exists() and words in path.read_bytes():
                found.append(pid)
        return found

    def _pods(self, victim: Victim) -> list[dict[str, Any]]:
        return self._site.pods(f"app.kubernetes.io/component={victim}", NAMESPACE)

    def _incidents(self) -> list[str]:
        items = self._site.cluster.plane.request("GET", INCIDENTS)["items"]
        return [json.dumps(one["spec"]) for one in items]

    def _is_at_work(self) -> bool:
        nodes = {*self._site.cluster.nodes}
        ready = {pod["spec"].get("nodeName") for pod in self._pods(Victim.AGENT) if is_ready(pod)}
        return {*self._site.in_service()} == nodes == ready and bool(leader(self._site))

    def _has_gone_on(self, before: Mapping[int, int]) -> bool:
        now = self._job.steps(1)
        return len(now) == self._job.ranks and all(
            now[rank] > step for rank, step in before.items()
        )

    def _until(self, what: str, is_so: Callable[[], object]) -> None:
        """Wait until something holds; what a control plane refuses meanwhile is asked again."""

        def holds() -> object:
            try:
                return is_so()
            except BackendError:
                return False

        try:
            self._site.until(holds, what, TIMEOUT_S)
        except BackendError as error:
            raise Broken(f"{what}: {error}\n{self._site.tell()}") from error


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is there to stay, and its containers are at work."""
    conditions = pod["status"].get("conditions") or ()
    works = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return works and "deletionTimestamp" not in pod["metadata"]
