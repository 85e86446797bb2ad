"""An agent's reporter on a real cluster, with the rights of an agent and not one more."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.server import Server
from holdfast.adapters.kubernetes.nodes.agent_settings import AgentKubernetes
from holdfast.adapters.kubernetes.nodes.report import NodeReporter, ReportIntervals
from holdfast.apps.clock import SystemClock
from holdfast.model.names import AGENT_HEALTH_STATUS, REPORT, Labels
from holdfast.model.report import NodeReport
from tests.engines.api_connection import Refused
from tests.engines.control_plane import ControlPlane

NAMESPACE = "holdfast"
ACCOUNT = "holdfast-agent"
HEALTH = Labels().node_health_status
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTER_RULES = [("", "nodes", ["get", "patch"]), ("", "nodes/status", ["patch"])]
LEASE_RULES = [("coordination.k8s.io", "leases", ["create", "patch"])]
EVENT_RULES = [("", "events", ["create", "patch"])]
QUICK = ReportIntervals(check=0.3, evidence=0.1, lease=0.1, events=0.1)


def grant(plane: ControlPlane, *, events: bool = True) -> str:
    """Make the account of the agents; returns a token of it."""
    home = f"/api/v1/namespaces/{NAMESPACE}"
    with suppress(Refused):
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    plane.request("POST", f"{home}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    _allow(plane, RBAC, "Cluster", CLUSTER_RULES)
    _allow(plane, f"{RBAC}/namespaces/{NAMESPACE}", "", LEASE_RULES)
    if events:
        allow_events(plane)
    return plane.service_account_token(NAMESPACE, ACCOUNT)


def allow_events(plane: ControlPlane) -> None:
    _allow(plane, f"{RBAC}/namespaces/default", "", EVENT_RULES)


def _allow(plane: ControlPlane, where: str, scope: str, rules: list[Any]) -> None:
    name = {"metadata": {"name": ACCOUNT}}
    granted = [{"apiGroups": [group], "resources": [kind], "verbs": v} for group, kind, v in rules]
    role = f"{scope}Role"
    plane.request("POST", f"{where}/{role.lower()}s", {**name, "rules": granted})
    binding = {
        **name,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }
    plane.request("POST", f"{where}/{role.lower()}bindings", binding)


class OnNode:
    """One node as the API server has it, and the reporter that speaks about it."""

    def __init__(self, plane: ControlPlane, reporter: NodeReporter, node: str) -> None:
        self.plane = plane
        self.reporter = reporter
        self.name = node
        self.said: list[str] = []
        self._last: NodeReport | None = None

    def tell(self, report: NodeReport) -> None:
        self.reporter.changed(self._last, report)
        self.reporter.heartbeat_sent()
        self._last = report

    @property
    def object(self) -> Any:
        return self.plane.request("GET", f"/api/v1/nodes/{self.name}")

    @property
    def label(self) -> str | None:
        return self.object["metadata"].get("labels", {}).get(HEALTH)

    @property
    def mark(self) -> str | None:
        return self.annotation(AGENT_HEALTH_STATUS)

    def annotation(self, key: str) -> str | None:
        return self.object["metadata"].get("annotations", {}).get(key)

    @property
    def taints(self) -> list[Any]:
        return self.object["spec"].get("taints", [])

    @property
    def report(self) -> Any:
        """The report on the Node object; None before the first."""
        return json.loads(self.annotation(REPORT) or "null")

    def condition(self, kind: str) -> Any:
        """A condition of the node; empty before it is first written."""
        found = [one for one in self.object["status"]["conditions"] if one["type"] == kind]
        return found[0] if found else {}

    @property
    def events(self) -> list[Any]:
        field = f"involvedObject.name={self.name},source=holdfast-agent"
        path = f"/api/v1/namespaces/default/events?fieldSelector={field}"
        return self.plane.request("GET", path)["items"]

    @property
    def lease(self) -> Any:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{self.name}"
        try:
            return self.plane.request("GET", path)
        except Refused:
            return None

    def change(self, patch: Any) -> None:
        self.plane.request("PATCH", f"/api/v1/nodes/{self.name}", patch)


@contextmanager
def reporting(
    plane: ControlPlane,
    node: str,
    token: str,
    *,
    intervals: ReportIntervals = QUICK,
    timeout_s: float = 10,
) -> Iterator[OnNode]:
    said: list[str] = []
    api = Api(
        Server(url=plane.url, ca_file=plane.certificate, token=lambda: token),
        user_agent="test",
        field_manager="holdfast-agent",
        timeout=timedelta(seconds=1),
    )
    reporter = NodeReporter(
        api,
        node,
        settings=AgentKubernetes(),
        timeout=timedelta(seconds=timeout_s),
        clock=SystemClock(),
        log=said.append,
        intervals=intervals,
    )
    on_node = OnNode(plane, reporter, node)
    on_node.said = said
    try:
        yield on_node
    finally:
        reporter.close()
