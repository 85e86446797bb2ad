"""The controller's backend on a real cluster, for tests."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from agent_lease import prepare_attempt
from real_cluster import TIMEOUT_S, Cluster, connected, until

from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.kubernetes.client.errors import AlreadyExists, NotFound
from holdfast.adapters.kubernetes.client.values import compact_json, parse_time
from holdfast.adapters.kubernetes.nodes.cluster import KubernetesCluster
from holdfast.adapters.kubernetes.nodes.dependencies import Dependencies
from holdfast.adapters.kubernetes.nodes.incidents import KubernetesIncidents
from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.apps.clock import SystemClock
from holdfast.model.names import REPORT, REQUEST
from holdfast.model.report import NodeReport
from tests.engines.control_plane import ControlPlane
from tests.ports.fakes import FakeEvents

CRD = Path(__file__).parents[2] / "deploy/helm/holdfast/crds/incidents.holdfast.dev.yaml"
NAMESPACE = "holdfast"
GROUP = "node.kubernetes.io/instance-type"
HOME = f"/api/v1/namespaces/{NAMESPACE}"
FURNITURE = (f"{HOME}/serviceaccounts/default", f"{HOME}/configmaps/kube-root-ca.crt")
"""What controllers put into every namespace, a moment after it is made."""


CALL_TIMEOUT = timedelta(seconds=TIMEOUT_S)
"""One slow answer fails no test that may wait longer."""


def api_of(cluster: Cluster, token: str = "", timeout: timedelta = CALL_TIMEOUT) -> Api:
    """A client; of the user who may do everything if no token is given."""
    plane = cluster.plane
    server = Server(url=plane.url, ca_file=plane.certificate, token=lambda: token or plane.token)
    return Api(server, user_agent="test", field_manager="test", timeout=timeout)


def install(cluster: Cluster) -> None:
    """The namespace and the CRD, as the chart brings them. They stay until the tests are over."""
    cluster.kubectl("apply", "-f", str(CRD))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    with closing(api_of(cluster)) as api:
        with suppress(AlreadyExists):
            api.create("/api/v1/namespaces", namespace)
        until(lambda: is_served(api, "/apis/holdfast.dev/v1/incidents"))
        until(lambda: all(is_there(api, path) for path in FURNITURE))


def is_there(api: Api, path: str) -> bool:
    try:
        return bool(api.get(path))
    except NotFound:
        return False


def is_served(api: Api, collection: str) -> bool:
    """Whether the API server knows a kind; it takes a moment after its definition."""
    try:
        return list(api.list(collection)) is not None
    except NotFound:
        return False


class Controlled:
    """A backend at work, and what a test does beside it."""

    def __init__(
        self,
        cluster: Cluster,
        settings: KubernetesSettings | None = None,
        token: str = "",
        timeout: timedelta = CALL_TIMEOUT,
    ) -> None:
        self.real = cluster
        self.api = api_of(cluster, token, timeout)
        self.events = FakeEvents()
        self.woken = threading.Event()
        self.evicted: list[tuple[str, str]] = []
        self.acts, self.elected = True, 0
        self.cluster = KubernetesCluster(
            self.api,
            settings or KubernetesSettings(),
            Dependencies(
                clock=SystemClock(),
                events=self.events,
                changed=self.woken.set,
                may_act=lambda: self.acts,
                elected=lambda: self.elected,
                evicted=lambda node, owner: self.evicted.append((node, owner.name)),
            ),
        )
        self.incidents = KubernetesIncidents(self.api)

    def start(self) -> None:
        self.cluster.start()
        until(lambda: self.cluster.synced)

    def stop(self) -> None:
        self.cluster.stop()
        self.api.close()

    def node(self, name: str) -> dict:
        return self.api.get(f"/api/v1/nodes/{name}")

    def view(self, name: str):
        return next((one for one in self.cluster.snapshot().nodes if one.name == name), None)

    def seen(self, name: str, condition=lambda view: True):
        """The view of a node once it is as it should be."""
        found = []

        def holds() -> bool:
            view = self.view(name)
            found[:] = [view]
            return view is not None and bool(condition(view))

        until(holds)
        return found[0]

    def annotate(self, name: str, **annotations: str | None) -> None:
        known = {"report": REPORT, "request": REQUEST}
        body = {known.get(key, key): value for key, value in annotations.items()}
        self.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": body}})

    def label(self, name: str, value: str | None, key: str) -> None:
        self.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {key: value}}})

    def report(self, name: str, *faults, boot_id: str | None = None) -> None:
        """The agent of a node says how it is."""
        node, now = self.node(name), datetime.now(UTC)
        present = node["status"]["nodeInfo"]["bootID"]
        prepare_attempt(self.api, node, present if boot_id is None else boot_id)
        said = NodeReport(
            node=name,
            boot_id=present if boot_id is None else boot_id,
            sequence=1,
            reported_at=now,
            faults=tuple(faults),
        )
        self.annotate(name, report=compact_json(said))

    def join(self, name: str, *, group: str = "p5", provider_id: str | None = None) -> None:
        """A node with an agent that finds nothing wrong."""
        self.real.nodes.join(name, labels={GROUP: group}, provider_id=provider_id)
        self.report(name)

    def marks(self, name: str) -> tuple[str | None, list[str], bool]:
        """The health label, the taints of ours, whether it is cordoned."""
        node = self.node(name)
        key = "sagemaker.amazonaws.com/node-health-status"
        taints = [t for t in node["spec"].get("taints", ()) if t["key"] == key]
        return (
            node["metadata"]["labels"].get(key),
            [f"{taint['value']}:{taint['effect']}" for taint in taints],
            node["spec"].get("unschedulable", False),
        )

    def pod(self, name: str, node: str, *, phase: str = "Running", **changes) -> None:
        """A pod that runs on a node until it is told to end."""
        body = {
            "metadata": {"name": name, **changes.pop("metadata", {})},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "c", "image": "none"}],
                **changes,
            },
        }
        self.api.create("/api/v1/namespaces/default/pods", body)
        until(lambda: self.phase_of(name) == phase)

    def phase_of(self, pod: str) -> str | None:
        items = self.api.list("/api/v1/namespaces/default/pods")
        return next((p["status"].get("phase") for p in items if p["metadata"]["name"] == pod), None)


@contextmanager
def controlled(
    cluster: Cluster,
    settings: KubernetesSettings | None = None,
    timeout: timedelta = CALL_TIMEOUT,
) -> Iterator[Controlled]:
    one = Controlled(cluster, settings, timeout=timeout)
    one.start()
    try:
        yield one
    finally:
        one.stop()


def created_at(node: dict) -> datetime | None:
    return parse_time(node["metadata"]["creationTimestamp"])


def decoded(text: str) -> dict:
    return json.loads(text)


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane, binaries: Mapping[str, Path]) -> None:
    """Session-wide: what a clean cluster has from the start is not removed between tests."""
    with connected(control_plane, binaries) as cluster:
        install(cluster)
