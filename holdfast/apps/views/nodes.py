"""What commands see of the nodes that one Holdfast looks after, wherever they are."""

import difflib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, TypeVar

from holdfast.decisions.lifecycle import deep_check_status, health_status
from holdfast.decisions.requested_checks import is_requested_check
from holdfast.model.errors import HoldfastError
from holdfast.model.health import Fault, Finding, Urgency
from holdfast.model.incidents import Incident
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

NO_RUN: Final = "no run is active; start one with: holdfast run -- COMMAND"


class NotFound(HoldfastError):
    """There is nothing of the name that a person gave; the message says what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One node as people are shown it."""

    run: str
    """The fleet that it belongs to."""

    is_active: bool
    """Whether somebody looks after it; else all is as it was at the end."""

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
    """The jobs that run on it now, separated by commas; empty if none does."""

    rank: int | None
    """Its node rank in that job; None if no job or several run on it, or that is not known."""

    powered_on: bool | None
    """None where nobody knows."""

    heartbeat_at: datetime | None
    """The agent's last sign of life in this boot."""

    replaces: str
    """The node that it was ordered to replace."""

    held: str
    """Why a person holds its repair; empty if nobody does."""

    closed: str
    """Who closed it to jobs beside Holdfast, and why; empty if nobody did."""

    remediation: Remediation | None
    request: Request | None
    """What a person asked for and was not started yet."""

    conditions: Mapping[str, str]
    """Node conditions that are True, with the reason of each."""

    faults: tuple[Fault, ...]
    notices: tuple[Finding, ...]
    history: tuple[PastFault, ...]
    checks: tuple[CheckResult, ...]
    """Its last deep health checks, oldest first."""

    incidents: tuple[str, ...]
    """Names of its incidents, oldest first."""

    group: str = ""
    """The instance group that it belongs to; empty if that is not known."""

    instance_type: str = ""
    """As its cloud calls it; empty if that is not known."""

    created_at: datetime | None = None
    """Since when the cluster has it; None if that is not known."""

    pairing: Pairing | None = None
    """Its part in tests between nodes; None while it has none."""

    drill_until: datetime | None = None
    """End of the drill that is active on it; None without one."""


def node_status(
    view: NodeView, *, run: str, notices: tuple[Finding, ...], incidents: tuple[str, ...]
) -> NodeStatus:
    """A node of a cluster, from what the core sees of it; which jobs it bears is not known here."""
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
        held=view.held,
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
        pairing=record.pairing,
        drill_until=view.drill_until,
    )


def incidents_by_node(incidents: Iterable[Incident]) -> dict[str, tuple[str, ...]]:
    """Names of the incidents of each node, also of one that took over; empty for any other."""
    found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for one in incidents:
        for node in {one.node, one.successor} - {""}:
            found[node] += (one.id,)
    return found


def check_waits(node: NodeStatus) -> str:
    """What the requested deep health check of a node waits for; empty if there is none."""
    if not is_requested_check(node.request) or node.phase is not Phase.SCHEDULABLE:
        return ""
    if node.job and node.request is not None and node.request.urgency is Urgency.DEFERRED:
        return f"waits for job {node.job}"
    return "waits until the node is idle and max_unavailable allows it"


@dataclass(frozen=True, slots=True)
class JobRank:
    """A node rank of a job."""

    job: str
    """As commands take it."""

    rank: int


class Fleet(Protocol):
    """Nodes that one Holdfast looks after: those of a run on this machine, or of a cluster.

    What is asked for is recorded, for the one who looks after them to take up. Every method may
    raise ``BackendError``.
    """

    @property
    def name(self) -> str:
        """Tells it from other fleets."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether it is looked after now."""
        ...

    def nodes(self) -> list[NodeStatus]:
        """All its nodes."""
        ...

    def ranks(self) -> Mapping[str, JobRank]:
        """``node -> rank that runs on it now``; empty where ranks are not known."""
        ...

    def incidents(self) -> tuple[Incident, ...]:
        """All its incidents, oldest first."""
        ...

    def submit(self, node: str, request: Request) -> str:
        """Record what a person wants; why it was in vain, or nothing."""
        ...

    def hold(self, node: str, why: str) -> None:
        """Let no repair of the node begin while ``why`` is not empty."""
        ...

    def breaker(self) -> Breaker:
        """What stops all repairs."""
        ...

    def close_breaker(self, now: datetime) -> None:
        """Let repairs begin again."""
        ...

    def has_ended(self) -> bool:
        """Whether nobody looks after it any more, asked anew."""
        ...

    @property
    def pause_s(self) -> float:
        """How many seconds to leave between two looks at it."""
        ...

    def describe_ranks(self) -> str:
        """Which ranks run now, in the words of a person."""
        ...


F = TypeVar("F", bound=Fleet)


def find_node(text: str, fleets: Sequence[F]) -> tuple[F, str]:
    """The node that a person means by its name, its instance id or its rank in the job.

    Of names and ids the beginning will do, as a narrow table shows it.

    Raises:
        NotFound: no node of these fleets is meant, or several are.

    """
    beginning = text.removesuffix("…")
    hits = _nodes(fleets, text, str.__eq__) or _nodes(fleets, beginning, str.startswith)
    if len(hits) > 1:
        names = ", ".join(f"{name} of run {fleet.name}" for fleet, name in hits)
        raise NotFound(f"{text!r} is ambiguous ({names}); use a longer prefix or --run NAME")
    if not hits:
        raise NotFound(_no_such_node(text, fleets))
    return hits[0]


def no_such(kind: str, text: str, names: Sequence[str]) -> str:
    """The sentence for a name that is not there."""
    near = difflib.get_close_matches(text, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    there = f" There are: {', '.join(names)}" if names else " There is none."
    return f"there is no {kind} {text!r}{hint or '.'}{there}"


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
        for node in fleet.nodes()
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
    return no_such("node", text, [node.name for fleet in fleets for node in fleet.nodes()])


def only(fleets: Sequence[F]) -> F:
    """The one that is meant.

    Raises:
        NotFound: there is none, or more than one.

    """
    if not fleets:
        raise NotFound(NO_RUN)
    if len(fleets) > 1:
        names = ", ".join(fleet.name for fleet in fleets)
        raise NotFound(f"several runs are active: {names}; select one with --run NAME")
    return fleets[0]
