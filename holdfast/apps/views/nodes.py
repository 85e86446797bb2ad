"""View of nodes for commands, on every platform."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from holdfast.apps.views.not_found import NotFound, no_such
from holdfast.apps.views.planned import PLANNED
from holdfast.decisions.node_labels import deep_check_status, health_status
from holdfast.decisions.planned_work import is_planned, is_requested_check
from holdfast.kit.units import DAY, HOUR
from holdfast.model.health import Fault, Finding, Urgency
from holdfast.model.names import Condition, DeepCheckStatus, HealthStatus, Reason
from holdfast.model.nodes import (
    Breaker,
    CheckResult,
    NodeView,
    Pairing,
    PastFault,
    Phase,
    Remediation,
)
from holdfast.model.requests import Request

if TYPE_CHECKING:  # lists of nodes need neither
    from holdfast.model.hardware import DeviceGroup
    from holdfast.model.incidents import Incident

NO_RUN: Final = "no run is active; start one with: holdfast run -- COMMAND"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """Node, as commands show it."""

    run: str
    """Name of its fleet."""

    is_active: bool
    """Whether it is managed now; otherwise all fields are those at the end of its run."""

    name: str
    provider_id: str
    boot_id: str
    """Empty before its first boot."""

    phase: Phase
    phase_since: datetime
    health_status: HealthStatus | None
    """HyperPod's label ``node-health-status``; None where HyperPod sets none."""

    deep_check_status: DeepCheckStatus | None
    """HyperPod's label ``deep-health-check-status``; None before any check."""

    job: str
    """Names of the jobs that run on it now, separated by commas; empty if none does."""

    rank: int | None
    """Its node rank in that job; None if no job or several run on it, or if it is not known."""

    powered_on: bool | None
    """None if not known."""

    heartbeat_at: datetime | None
    """Time of the agent's last heartbeat in this boot."""

    replaces: str
    """Name of the node that it was ordered to replace."""

    pause_reason: str
    """Why its repairs are paused; empty if they are not."""

    closed: str
    """Who else than Holdfast made it unschedulable, and why; empty if nobody did."""

    remediation: Remediation | None
    request: Request | None
    """Request of a person that has not started yet."""

    conditions: Mapping[str, str]
    """Node conditions that are True, with the reason of each."""

    faults: tuple[Fault, ...]
    notices: tuple[Finding, ...]
    history: tuple[PastFault, ...]
    checks: tuple[CheckResult, ...]
    """Last deep health checks, oldest first."""

    incidents: tuple[str, ...]
    """IDs of its incidents, oldest first."""

    group: str = ""
    """Instance group; empty if not known."""

    instance_type: str = ""
    """Instance type of the cloud; empty if not known."""

    addresses: tuple[str, ...] = ()
    """Host names and IP addresses that the platform knows of it, those for other nodes first."""

    created_at: datetime | None = None
    """Time at which it joined the cluster; None if not known."""

    pairing: Pairing | None = None
    """Its part in tests between nodes; None if it has none."""

    drill_until: datetime | None = None
    """End of the drill that is active on it; None without one."""

    replaced_at: tuple[datetime, ...] = ()
    """Times of the automatic replacements of its machine in the last day, oldest first."""

    @property
    def is_planned(self) -> bool:
        """Whether it is out of service for planned work: requested, scheduled, or as a partner."""
        return self.remediation is not None and is_planned(self.remediation.reason)


def phase_text(node: NodeStatus) -> str:
    """Return the phase of a node, and whether it is out of service for planned work only."""
    return f"{node.phase} {PLANNED}" if node.is_planned else node.phase.value


class ReplacementCount(NamedTuple):
    """Automatic replacements of a cluster."""

    last_hour: int
    last_day: int


def replacement_count(nodes: Iterable[NodeStatus], now: datetime) -> ReplacementCount:
    """Return the number of automatic replacements of nodes."""
    ages = [now - at for node in nodes for at in node.replaced_at]
    return ReplacementCount(sum(one < HOUR for one in ages), sum(one < DAY for one in ages))


def node_status(
    view: NodeView, *, run: str, notices: tuple[Finding, ...], incidents: tuple[str, ...]
) -> NodeStatus:
    """Return the status of a node from the core's view of it, without its jobs."""
    record = view.record
    conditions = {fault.condition: fault.reason for fault in view.faults}
    if record.agent_silent_since is not None:
        conditions[Condition.AGENT_SILENT] = Reason.AGENT_SILENT
    if record.remediation is not None:
        conditions[record.remediation.condition] = record.remediation.reason
    return NodeStatus(
        run=run,
        is_active=True,
        name=view.name,
        provider_id=view.provider_id,
        boot_id=view.boot_id,
        phase=record.phase,
        phase_since=record.phase_since,
        health_status=health_status(record, is_closed=bool(view.closed)),
        deep_check_status=deep_check_status(view),
        job="",
        rank=None,
        powered_on=view.powered_on,
        heartbeat_at=view.heartbeat_at,
        replaces=view.replaces,
        pause_reason=view.pause_reason,
        closed=view.closed,
        remediation=record.remediation,
        request=view.request,
        conditions=conditions,
        faults=view.faults,
        notices=notices,
        history=record.history,
        checks=record.checks,
        incidents=incidents,
        group=view.group,
        instance_type=view.instance_type,
        addresses=view.addresses,
        pairing=record.pairing,
        drill_until=view.drill_until,
        replaced_at=record.replaced_at,
    )


def incidents_by_node(incidents: "Iterable[Incident]") -> dict[str, tuple[str, ...]]:
    """Return ``node -> IDs of its incidents``, also for successors; empty for any other node."""
    found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for one in incidents:
        for node in {one.node, one.successor} - {""}:
            found[node] += (one.id,)
    return found


def check_waits(node: NodeStatus) -> str:
    """Return what the requested deep health check of a node waits for; empty without a request."""
    if not is_requested_check(node.request) or node.phase is not Phase.SCHEDULABLE:
        return ""
    if node.job and node.request is not None and node.request.urgency is Urgency.DEFERRED:
        return f"waits for job {node.job}"
    return "waits until the node is idle and max_unavailable allows it"


class JobRank(NamedTuple):
    """Node rank of a job."""

    job: str
    """Reference of the job that commands accept."""

    rank: int


class Fleet(Protocol):
    """Nodes that one controller or run manages: those of a cluster, or of a run on this machine.

    Requests are only recorded; the controller or the run carries them out. Every method may raise
    ``BackendError``.
    """

    @property
    def name(self) -> str:
        """Name of the cluster or the run."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether it is managed now."""
        ...

    def nodes(self, *, brief: bool = False) -> list[NodeStatus]:
        """Return all its nodes.

        Args:
            brief: leave out heartbeats and incidents where reading them takes further calls.

        """
        ...

    def ranks(self) -> Mapping[str, JobRank]:
        """Return ``node -> rank that runs on it now``; empty if ranks are not known."""
        ...

    def incidents(self) -> "tuple[Incident, ...]":
        """Return all its incidents, oldest first."""
        ...

    def hardware(self, node: str) -> "tuple[DeviceGroup, ...]":
        """Return the devices that a node's agent has read; empty without any, or a report."""
        ...

    def submit(self, node: str, request: Request) -> str:
        """Record a request for a node; returns why it was refused, or an empty string."""
        ...

    def hold(self, node: str, why: str) -> None:
        """Pause repairs on a node with the reason ``why``; an empty reason resumes them."""
        ...

    def breaker(self) -> Breaker:
        """Return the circuit breaker, which pauses all repairs while it is open."""
        ...

    def close_breaker(self, now: datetime) -> None:
        """Reset the circuit breaker, so that repairs resume."""
        ...

    def has_ended(self) -> bool:
        """Read again whether it is no longer managed."""
        ...

    @property
    def poll_interval_s(self) -> float:
        """Seconds between two polls."""
        ...

    def describe_ranks(self) -> str:
        """Return the ranks that run now, as part of a message."""
        ...


class ClusterFleet(Fleet, Protocol):
    """Nodes of a Kubernetes or Slurm cluster, which does not end, and whose jobs have own ranks."""

    @property
    def is_active(self) -> bool:
        """See ``Fleet.is_active``: the platform reports whether a controller runs."""
        return True

    def ranks(self) -> Mapping[str, JobRank]:
        """See ``Fleet.ranks``: ranks of different jobs have no common numbering."""
        return {}

    def has_ended(self) -> bool:
        """See ``Fleet.has_ended``."""
        return False

    def describe_ranks(self) -> str:
        """See ``Fleet.describe_ranks``."""
        return "nodes of a cluster are selected by name"


F = TypeVar("F", bound=Fleet)


def find_node(text: str, fleets: Sequence[F]) -> tuple[F, str]:
    """Return a node by its name, its instance ID, or its rank in the job.

    A unique prefix of a name or ID is enough, also as a narrow table shows it, with an ellipsis.

    Raises:
        NotFound: no node of these fleets matches, or several do.

    """
    beginning = text.removesuffix("…")
    hits = _nodes(fleets, text, str.__eq__) or _nodes(fleets, beginning, str.startswith)
    if len(hits) > 1:
        names = ", ".join(f"{name} of run {fleet.name}" for fleet, name in hits)
        raise NotFound(f"{text!r} is ambiguous ({names}); use a longer prefix or --run NAME")
    if not hits:
        raise NotFound(_no_such_node(text, fleets))
    return hits[0]


def _nodes(
    fleets: Sequence[F], text: str, matches: Callable[[str, str], bool]
) -> list[tuple[F, str]]:
    if text.isdecimal():
        return [
            (fleet, name)
            for fleet in fleets
            for name, one in fleet.ranks().items()
            if one.rank == int(text)
        ]
    return [
        (fleet, node.name)
        for fleet in fleets
        for node in fleet.nodes(brief=True)
        if text and (matches(node.name, text) or matches(node.provider_id, text))
    ]


def _no_such_node(text: str, fleets: Sequence[Fleet]) -> str:
    if not fleets:
        return NO_RUN
    if text.isdecimal():
        ranks = "; ".join(f"{fleet.name}: {fleet.describe_ranks()}" for fleet in fleets)
        return f"rank {text} is not running on any node ({ranks})"
    for fleet in fleets:
        for incident in fleet.incidents():
            if text in (incident.node, incident.provider_id) and incident.successor:
                return f"{incident.node} was replaced by {incident.successor}"
    return no_such(
        "node", text, [node.name for fleet in fleets for node in fleet.nodes(brief=True)]
    )


def only(fleets: Sequence[F]) -> F:
    """Return the single fleet.

    Raises:
        NotFound: there is no fleet, or more than one.

    """
    if not fleets:
        raise NotFound(NO_RUN)
    if len(fleets) > 1:
        names = ", ".join(fleet.name for fleet in fleets)
        raise NotFound(f"several runs are active: {names}; select one with --run NAME")
    return fleets[0]
