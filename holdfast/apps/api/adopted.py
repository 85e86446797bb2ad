"""Clusters that were not created through the API, as API responses show them."""

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import datetime
from typing import Final, Generic, TypeVar

from holdfast.api.clusters import Cluster, Node, cluster_id, instance_id
from holdfast.apps.api.shared_fleet import RepairableFleet, SharedFleet
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import TargetPlatform, Where, open_fleets
from holdfast.apps.views.nodes import NodeStatus, check_waits
from holdfast.apps.views.runs import KnownRun
from holdfast.model.clusters import ClusterEvent, DesiredCluster, NodeHealth
from holdfast.model.health import Remedy
from holdfast.model.incidents import Incident
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import Phase
from holdfast.model.requests import Request, Verb
from holdfast.model.sagemaker import InstanceStatus

T = TypeVar("T")

Opener = Callable[[], AbstractContextManager[Sequence[Cluster]]]
"""Opens the clusters for the duration of a call."""

_GROUP: Final = "nodes"
"""Group name of nodes without a group."""

_UNKNOWN: Final = "unknown"

FRESH_S: Final = 2.0
"""Lifetime of a cached cluster: reading 5,000 nodes takes about a second."""

_STATUS: Final = {
    Phase.SCHEDULABLE: InstanceStatus.RUNNING,
    Phase.QUARANTINED: InstanceStatus.RUNNING,
    Phase.DRAINING: InstanceStatus.RUNNING,
    Phase.CHECKING: InstanceStatus.CHECKING,
    Phase.JOINING: InstanceStatus.PENDING,
    Phase.REBOOTING: InstanceStatus.PENDING,
    Phase.REPLACING: InstanceStatus.PENDING,
}

_PHASE_TEXTS: Final = {
    Phase.QUARANTINED: "quarantined",
    Phase.DRAINING: "being drained",
    Phase.CHECKING: "being checked",
    Phase.JOINING: "joining",
    Phase.REBOOTING: "rebooting",
    Phase.REPLACING: "being replaced",
}


class AdoptedCluster:
    """A ``Cluster`` backed by a fleet."""

    def __init__(
        self, fleet: RepairableFleet, name: str, since: datetime, *, is_listed: bool = True
    ) -> None:
        self._fleet = fleet
        self.is_listed = is_listed
        self._name = name
        self._since = since
        self._nodes = _Cached(lambda: [_node(one, since) for one in fleet.nodes()])
        self._incidents = _Cached(fleet.incidents)

    @property
    def name(self) -> str:
        """See ``Cluster.name``."""
        return self._name

    @property
    def id(self) -> str:
        """See ``Cluster.id``."""
        return cluster_id(self._name)

    @property
    def created_at(self) -> datetime:
        """See ``Cluster.created_at``: creation time of the oldest node."""
        return min((one.launched_at for one in self.nodes()), default=self._since)

    def nodes(self) -> Sequence[Node]:
        """See ``Cluster.nodes``."""
        return self._nodes.get()

    def incidents(self) -> Sequence[Incident]:
        """See ``Cluster.incidents``."""
        return self._incidents.get()

    def desired(self) -> DesiredCluster | None:
        """See ``Cluster.desired``: None, not created through the API."""
        return None

    def cluster_events(self) -> Sequence[ClusterEvent]:
        """See ``Cluster.cluster_events``: empty, all events come from incidents."""
        return ()

    def submit(self, node: str, verb: Verb, person: str, checks: Sequence[DeepCheck] = ()) -> str:
        """See ``Cluster.submit``."""
        if not self._fleet.is_active:
            return f"{self._name} is not active"
        return self._fleet.submit(node, request_of(verb, person, checks))


def clusters_of(where: Where, name: str, opened: ExitStack) -> Opener:
    """Factory of the clusters for each API call.

    Args:
        where: platform whose nodes to show.
        name: name of the cluster, if there is only one; may be empty.
        opened: exit stack for resources kept open between calls.

    Raises:
        ConfigError: the cluster cannot be found.

    """
    since = SystemClock().now()
    if where.place is TargetPlatform.LOCAL:
        return lambda: _runs(where, since)
    fleet = opened.enter_context(closing(SharedFleet(where)))
    adopted = [AdoptedCluster(fleet, proper_name(name or fleet.name), since)]
    return lambda: _always(adopted)


def request_of(verb: Verb, person: str, checks: Sequence[DeepCheck] = ()) -> Request:
    """Request with the current time; ``checks`` are the kinds of a deep health check, or all.

    SageMaker's requests have no urgency: a check waits for jobs, a repair does not.
    """
    return Request(
        id=str(uuid.uuid4()),
        verb=verb,
        requested_at=SystemClock().now(),
        requested_by=person,
        urgency=verb.usual_urgency,
        checks=tuple(checks),
    )


def submit_for(fleet: RepairableFleet, machine: str, request: Request) -> str:
    """Record a request for the node of a machine; returns why it has no effect, or nothing.

    The name of the node is that of the platform, which EC2 does not know.

    Args:
        fleet: nodes of the platform.
        machine: id of the machine, as in the provider ID of its node.
        request: request of a person.

    """
    for one in fleet.nodes():
        if instance_id(one.provider_id) == machine:
            return fleet.submit(one.name, request)
    return f"no node has the machine {machine}: retry once it has joined, or delete it"


def renew_nodes(fleet: RepairableFleet, machines: Sequence[str]) -> frozenset[str]:
    """Request the replacement of machines, unless it is under way; see ``ClusterNodes.renew``."""
    watched = set()
    for one in fleet.nodes():
        machine = instance_id(one.provider_id)
        if machine not in machines:
            continue
        is_requested = one.request is not None and one.request.verb is Verb.REPLACE
        is_going = is_requested or one.phase in (Phase.DRAINING, Phase.REPLACING)
        if is_going or not fleet.submit(
            one.name, request_of(Verb.REPLACE, "UpdateClusterSoftware")
        ):
            watched.add(machine)
    return frozenset(watched)


def proper_name(text: str) -> str:
    """Text converted to a valid cluster name."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", text.removeprefix("https://")).strip("-")[:63].strip("-")


@contextmanager
def _runs(where: Where, since: datetime) -> Iterator[Sequence[Cluster]]:
    """Active runs on this machine."""
    with open_fleets(where) as fleets:
        yield [
            AdoptedCluster(one, proper_name(one.name), since, is_listed=False)
            for one in fleets
            if not (isinstance(one, KnownRun) and one.directory.is_cluster)
        ]


@contextmanager
def _always(clusters: Sequence[Cluster]) -> Iterator[Sequence[Cluster]]:
    yield clusters


class _Cached(Generic[T]):
    """Cached value, reloaded when it expires; thread-safe."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._value: T | None = None

    def get(self) -> T:
        with self._lock:
            if self._value is None or time.monotonic() - self._read_at > FRESH_S:
                self._value = self._read()
                self._read_at = time.monotonic()
            return self._value


def health_of(status: NodeStatus) -> NodeHealth:
    """Status message of a node, from its controller."""
    return NodeHealth(
        status=_STATUS[status.phase],
        message=_message(status),
        is_busy=bool(status.job),
        in_repair=status.phase is not Phase.SCHEDULABLE or status.request is not None,
    )


def _node(status: NodeStatus, since: datetime) -> Node:
    return Node(
        name=status.name,
        instance_id=instance_id(status.provider_id),
        group=proper_name(status.group) or _GROUP,
        instance_type=f"ml.{status.instance_type}" if status.instance_type else _UNKNOWN,
        launched_at=status.created_at or since,
        addresses=status.addresses,
        status=_STATUS[status.phase],
        message=_message(status),
    )


def _message(status: NodeStatus) -> str:
    if status.phase is Phase.SCHEDULABLE:
        if status.closed:
            return f"The node is closed to jobs: {status.closed}."
        waits = check_waits(status)
        if waits:
            return f"The requested deep health check {waits}."
        remarks = status.checks[-1].remarks if status.checks else ""
        return f"The last deep health check: {remarks}." if remarks else ""
    text = _PHASE_TEXTS[status.phase]
    if status.is_planned and status.phase is Phase.QUARANTINED:
        text = "cordoned for planned work"
    what = f"The node is {text}"
    if status.remediation is None:
        return f"{what}."
    remedy = status.remediation.remedy
    work = "deep health check" if remedy is Remedy.NONE else remedy
    return f"{what}: {work} for {status.remediation.reason}."
