"""View of the nodes of a Kubernetes cluster, for commands."""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast import __version__
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import NotFound
from holdfast.adapters.kubernetes.client.kubeconfig import find_server
from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.nodes.encoding import ParsedAnnotations, parse_annotations
from holdfast.adapters.kubernetes.nodes.hardware import unpack
from holdfast.adapters.kubernetes.nodes.heartbeats import KUBELETS, LeaseReader, NodeLease
from holdfast.adapters.kubernetes.nodes.node import Conventions, NodeState, trimmed
from holdfast.adapters.kubernetes.nodes.state import ClusterMemory, Memory
from holdfast.adapters.kubernetes.nodes.views import (
    LastHeartbeats,
    agent_heartbeat_at,
    is_managed,
    kubelet_answered_at,
    leaving_view,
    node_view,
    record_of,
)
from holdfast.apps.clock import SystemClock
from holdfast.apps.views.nodes import ClusterFleet, NodeStatus, incidents_by_node, node_status
from holdfast.model.hardware import DeviceGroup
from holdfast.model.names import GROUP_LABELS, HOLD, REQUEST
from holdfast.model.nodes import Breaker
from holdfast.model.requests import Request

if TYPE_CHECKING:  # lists of nodes show none
    from holdfast.model.incidents import Incident

_INCIDENTS: Final = "holdfast.adapters.kubernetes.nodes.incidents"

NAMESPACE = "HOLDFAST_NAMESPACE"
"""Environment variable: namespace of the controller's state, if not ``holdfast``."""

AGENT_NAMESPACE = "HOLDFAST_AGENT_NAMESPACE"
"""Environment variable: namespace of the agents' Leases, if not that of the controller."""

_INSTANCE_TYPE = "node.kubernetes.io/instance-type"


def connect(kubeconfig: Path | None, context: str | None) -> "KubernetesFleet":
    """Connect to the cluster that kubectl would use.

    Raises:
        ConfigError: no cluster is configured, or it cannot be used.

    """
    server = find_server(kubeconfig, context or "")
    name = "holdfast"
    api = Api(server, user_agent=f"{name}/{__version__}", field_manager=name)
    namespace = os.environ.get(NAMESPACE, name)
    agents = os.environ.get(AGENT_NAMESPACE, namespace)
    return KubernetesFleet(context or server.url, api, namespace, agents)


class KubernetesFleet(ClusterFleet):
    """A ``Fleet``: all nodes of a cluster that Holdfast manages."""

    def __init__(self, name: str, api: Api, namespace: str, agent_namespace: str) -> None:
        self._name = name
        self._api = api
        self._memory = ClusterMemory(api, namespace, lambda: None)
        self._agents = LeaseReader(api, agent_namespace)
        self._kubelets = LeaseReader(api, KUBELETS)
        self._conventions = Conventions(group_labels=GROUP_LABELS)
        self._breaker_read: Breaker | None = None

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    @property
    def name(self) -> str:
        """See ``Fleet.name``."""
        return self._name

    def nodes(self, *, brief: bool = False) -> list[NodeStatus]:
        """See ``Fleet.nodes``."""
        now = SystemClock().now()
        states = [trimmed(one, self._conventions) for one in self._api.list("/api/v1/nodes")]
        memory = self._memory.fetch()
        self._breaker_read = memory.breaker
        found = {
            state.name: (state, parse_annotations(state, self._conventions, now))
            for state in states
        }
        managed = {name: one for name, one in found.items() if is_managed(*one)}
        read = () if brief else list(managed)
        leases = self._agents.of(read, now, at_once=read)
        answers = self._kubelets.of(read, now, at_once=read)
        incidents = incidents_by_node(() if brief else self.incidents())
        listed = [
            self._status(state, parsed, (leases.get(name), answers.get(name)), incidents[name], now)
            for name, (state, parsed) in sorted(managed.items())
        ]
        return listed + self._leaving(memory, found, incidents)

    def incidents(self) -> "tuple[Incident, ...]":
        """See ``Fleet.incidents``."""
        found: tuple[Incident, ...] = (
            import_module(_INCIDENTS).KubernetesIncidents(self._api).list_incidents()
        )
        return found

    def hardware(self, node: str) -> tuple[DeviceGroup, ...]:
        """See ``Fleet.hardware``."""
        try:
            return unpack(self._api.get(f"/api/v1/nodes/{node}"))
        except NotFound:
            return ()

    def submit(self, node: str, request: Request) -> str:
        """See ``Fleet.submit``."""
        self._annotate(node, {REQUEST: compact_json(request)})
        return ""

    def hold(self, node: str, why: str) -> None:
        """See ``Fleet.hold``."""
        self._annotate(node, {HOLD: why or None})

    def _annotate(self, node: str, annotations: Mapping[str, str | None]) -> None:
        """Write annotations for the controller, which replace earlier ones."""
        self._api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": annotations}})

    def breaker(self) -> Breaker:
        """See ``Fleet.breaker``; makes no call directly after ``nodes``, which reads it, too."""
        read, self._breaker_read = self._breaker_read, None
        return self._memory.fetch().breaker if read is None else read

    def close_breaker(self, now: datetime) -> None:
        """See ``Fleet.close_breaker``."""
        self._memory.put_breaker(Breaker(reset_at=now))

    @property
    def poll_interval_s(self) -> float:
        """See ``Fleet.poll_interval_s``: a repair takes minutes."""
        return 1.0

    def _status(
        self,
        state: NodeState,
        parsed: ParsedAnnotations,
        leases: tuple[NodeLease | None, NodeLease | None],
        incidents: tuple[str, ...],
        now: datetime,
    ) -> NodeStatus:
        record = record_of(state, parsed, now)
        agent, kubelet = leases
        heartbeats = LastHeartbeats(
            agent_at=agent_heartbeat_at(state, parsed, record, agent, None),
            kubelet_at=kubelet_answered_at(state, record, now, kubelet),
        )
        view = node_view(state, parsed, record, heartbeats=heartbeats)
        notices = parsed.report.notices if parsed.report is not None else ()
        status = node_status(view, run=self._name, notices=notices, incidents=incidents)
        return replace(
            status,
            instance_type=state.labels.get(_INSTANCE_TYPE, ""),
            created_at=state.created_at,
        )

    def _leaving(
        self,
        memory: Memory,
        found: dict[str, tuple[NodeState, ParsedAnnotations]],
        incidents: dict[str, tuple[str, ...]],
    ) -> list[NodeStatus]:
        """Return the nodes whose object is deleted and whose replacement is ordered."""
        return [
            node_status(
                leaving_view(name, one), run=self._name, notices=(), incidents=incidents[name]
            )
            for name, one in sorted(memory.leaving.items())
            if name not in found
        ]
