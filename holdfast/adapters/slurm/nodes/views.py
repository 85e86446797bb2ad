"""Builds the core's view of a node from Slurm's state, report and record, and its mark. Pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import Author, our_reason
from holdfast.adapters.slurm.nodes.boots import is_other_slurmd
from holdfast.adapters.slurm.nodes.check_results import faults_of
from holdfast.adapters.slurm.nodes.reports import ReceivedReport, verdict_name
from holdfast.adapters.slurm.nodes.state import Memory, RememberedNode
from holdfast.decisions.silent_agents import is_known_silent
from holdfast.decisions.taken_requests import carries_out
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Reason
from holdfast.model.nodes import CheckResult, NodeRecord, NodeView, PairOutcome, Phase
from holdfast.model.requests import Request

_COMING: Final = frozenset((Phase.JOINING, Phase.REBOOTING))
"""Phases in which the agent's report of the current boot counts."""

_TIMEOUT: Final = timedelta(minutes=2)
"""Maximum time from an agent's first report to slurmd's registration; the same boot starts both."""

_REBOOTED: Final = "Node unexpectedly rebooted"
_SETTLES: Final = timedelta(minutes=1)
"""How long after its release Slurm may still set a node DOWN for the reboot of its repair."""

_NEVER_JOINED: Final = frozenset((Reason.NODE_NEVER_JOINED, Reason.NODE_START_FAILED))
_MAINTENANCE: Final = frozenset(("MAINT", "MAINTENANCE"))
_IN_REPAIR: Final = frozenset((Phase.REBOOTING, Phase.REPLACING))


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Facts, reports and stored state of one node."""

    name: str
    facts: NodeFacts | None
    """None while Slurm does not know the node."""

    received: ReceivedReport | None
    remembered: RememberedNode | None
    verdict: ReceivedReport | None = None
    """Faults found on the node by a check that was not a Holdfast job."""

    @property
    def machine(self) -> str:
        """Return the ID of the machine behind the node: that of the agent, else of Slurm."""
        if self.received is not None and self.received.machine:
            return self.received.machine
        if self.facts is not None and self.facts.instance_id:
            return self.facts.instance_id
        if self.remembered is not None and self.remembered.machine:
            return self.remembered.machine
        return f"slurm:{self.name}"


def record_of(known: Known, first_seen: datetime) -> NodeRecord:
    """Return the record of a node; for a new node, a record in phase joining."""
    if known.remembered is not None:
        return known.remembered.record
    return NodeRecord(phase=Phase.JOINING, phase_since=first_seen)


def request_of(facts: NodeFacts | None, requested_at: datetime) -> Request | None:
    """Return the request that a person makes through state and reason of a node."""
    if facts is None or facts.reason.verb is None or not facts.is_closed:
        return None
    return Request(
        id=_digest(facts.name, facts.reason.verb, facts.reason_set),
        verb=facts.reason.verb,
        requested_at=requested_at,
        requested_by=facts.reason_set.partition("@")[0],
        urgency=Urgency.IMMEDIATE if "DOWN" in facts.state else Urgency.DEFERRED,
    )


def held_by(facts: NodeFacts | None, hold: str) -> str:
    """Return why repairs are on hold: a person paused them, or closed the node for other work."""
    if hold or facts is None:
        return hold
    who = facts.reason_set.partition("@")[0] or "somebody"
    if facts.is_taken:
        return f"taken out of service by {who} in Slurm: {facts.reason.text}"
    if facts.state & _MAINTENANCE:
        return "it is reserved for maintenance in Slurm"
    return ""


def closed_by(facts: NodeFacts | None, record: NodeRecord) -> str:
    """Return who else keeps a node closed to jobs, and why; empty if nobody does."""
    is_closed_by_holdfast = record.phase is not Phase.SCHEDULABLE
    return "" if facts is None or is_closed_by_holdfast else facts.closed_by


def last_response_at(
    known: Known,
    record: NodeRecord,
    now: datetime,
    answered_at: datetime | None = None,
    began: datetime | None = None,
) -> datetime | None:
    """Return when a node last responded; None before its first report in this boot.

    Args:
        known: the node.
        record: its record.
        now: the present time.
        answered_at: when its slurmd was last known to respond; None if that is unknown.
        began: when this process began to follow the node; None for one that reads it once.

    """
    facts, received = known.facts, known.received
    at = None if received is None else received.at
    if record.phase in _COMING or _never_joined(record):
        return now if at is not None and _is_back(known) else None
    if facts is not None and (
        facts.has_heartbeat or (facts.is_asleep and record.remediation is None)
    ):
        return now
    if answered_at is None and not is_known_silent(record):
        answered_at = began
    return max((one for one in (at, answered_at) if one is not None), default=None)


def _never_joined(record: NodeRecord) -> bool:
    """Whether a node was given up before its slurmd responded; its agent alone changes nothing."""
    remediation = record.remediation
    is_closed = record.phase in (Phase.QUARANTINED, Phase.DRAINING)
    return is_closed and remediation is not None and remediation.reason in _NEVER_JOINED


def node_view(
    known: Known,
    record: NodeRecord,
    memory: Memory,
    *,
    heartbeat_at: datetime | None,
    jobs: tuple[str, ...],
    now: datetime,
    check: CheckResult | None = None,
    pair: PairOutcome | None = None,
) -> NodeView:
    """Return the core's view of a node."""
    report = known.received.report if known.received is not None else None
    return NodeView(
        name=known.name,
        provider_id=known.machine,
        addresses=() if known.facts is None or not known.facts.address else (known.facts.address,),
        record=record,
        boot_id="" if report is None else report.boot_id,
        faults=()
        if report is None
        else (*report.faults, *faults_of(known.verdict, known.received)),
        suspects=() if report is None else report.suspects,
        drill_until=None if report is None else report.drill_until,
        heartbeat_at=heartbeat_at,
        reported_at=None if known.received is None else known.received.written_at,
        join_error="" if known.facts is None else known.facts.start_error,
        request=memory.requests.get(known.name) or request_of(known.facts, now),
        pause_reason=held_by(known.facts, memory.holds.get(known.name, "")),
        closed=closed_by(known.facts, record),
        running_jobs=jobs,
        group="" if known.facts is None else known.facts.partition,
        check=check,
        pair=pair,
    )


def remembered(known: Known, record: NodeRecord) -> RememberedNode:
    """Return the state to store for a node with a new record."""
    before = known.remembered
    slurmd = "" if before is None else before.slurmd
    is_leaving = record.phase in _IN_REPAIR and (
        before is None or before.record.phase not in _IN_REPAIR
    )
    if is_leaving and known.facts is not None:
        slurmd = known.facts.slurmd
    if record.remediation is None:
        slurmd = ""
    return RememberedNode(record=record, machine=known.machine, slurmd=slurmd)


def closing_reason(facts: NodeFacts, record: NodeRecord, cleared: str = "") -> str | None:
    """Return the reason to close a node with; None if it is closed as required, or must stay open.

    A node that somebody else has closed is left alone, as is a request in its reason until the
    record carries it out, except the one with the ID ``cleared``: the reason alone has it.
    """
    if record.phase is Phase.SCHEDULABLE:
        return None
    if facts.is_taken:
        return None
    request = request_of(facts, record.phase_since)
    if request is not None and request.id != cleared and not carries_out(record, request):
        return None
    if "FAIL" in facts.state and facts.start_error:
        return None  # sinfo -R shows Slurm's own reason
    expected = our_reason(record)
    is_written = facts.reason.text == expected or facts.reason.text.startswith(f"{expected} :")
    return None if "FAIL" in facts.state and is_written else expected


def is_to_open(facts: NodeFacts, record: NodeRecord, now: datetime, *, was_closed: bool) -> bool:
    """Whether to open a node for jobs: Holdfast, or Slurm itself, has closed it.

    Slurm may set a node that was just released DOWN again, for the reboot of its repair:
    slurmctld compares boot times, which slurmd reports to within about a second.

    Args:
        facts: the node.
        record: its new record.
        now: the present time.
        was_closed: whether Holdfast kept it closed until now.

    """
    if record.phase is not Phase.SCHEDULABLE or not facts.is_closed:
        return False
    if _is_down_for_boot(facts) and now - record.phase_since < _SETTLES:
        return True
    authors = (Author.HOLDFAST, *((Author.NONE, Author.SLURM) if was_closed else ()))
    return facts.reason.author in authors


def is_marked(
    facts: NodeFacts, record: NodeRecord, now: datetime, *, was_closed: bool, cleared: str = ""
) -> bool:
    """Whether a node is closed or open as its record requires, so that nothing is to be changed.

    The arguments are those of ``closing_reason`` and ``is_to_open``.
    """
    is_closed = closing_reason(facts, record, cleared) is None
    return is_closed and not is_to_open(facts, record, now, was_closed=was_closed)


def _is_down_for_boot(facts: NodeFacts) -> bool:
    """Whether Slurm set a node DOWN because it rebooted.

    24.11 sets a reason only if there was none before, and our release leaves a blank one. Nobody
    else can set a node DOWN without a reason.
    """
    text = facts.reason.text
    if not text:
        return "DOWN" in facts.state
    return facts.reason.author is Author.SLURM and text.startswith(_REBOOTED)


def is_renewed(record: NodeRecord) -> bool:
    """Whether the machine of a joining node has replaced another."""
    remediation = record.remediation
    is_replaced = remediation is not None and remediation.remedy is Remedy.REPLACE
    return record.phase is Phase.JOINING and is_replaced


def is_lost(known: Known, now: datetime) -> bool:
    """Whether a machine's agent reports, but its slurmd does not register.

    A new machine often has another address, and the address of a static node is fixed in
    slurm.conf.
    """
    facts, received, before = known.facts, known.received, known.remembered
    if facts is None or received is None or before is None or facts.has_heartbeat:
        return False
    since = before.record.phase_since
    joins = before.record.phase is Phase.JOINING and now - since >= _TIMEOUT
    return joins and received.at is not None and received.at > since


def has_leftovers(known: Known) -> bool:
    """Whether Slurm waits for jobs to end on a machine that has rebooted since they ran there.

    For jobs of a machine that was replaced, it may wait forever.
    """
    facts, before = known.facts, known.remembered
    if facts is None or before is None or before.record.phase is not Phase.JOINING:
        return False
    return "COMPLETING" in facts.state and bool(before.slurmd) and _is_back(known)


def _is_back(known: Known) -> bool:
    """Whether slurmd responds, and has restarted since the repair of the node began."""
    facts, before = known.facts, known.remembered
    if facts is None or not facts.has_heartbeat or "INVALID_REG" in facts.state:
        return False
    was = "" if before is None else before.slurmd.strip("/")
    return not was or is_other_slurmd(facts.slurmd, was)


def known_nodes(
    facts: Mapping[str, NodeFacts], received: Mapping[str, ReceivedReport], memory: Memory
) -> dict[str, Known]:
    """Return all managed nodes by name: each has an agent that reports, or a record.

    A node that Slurm no longer knows is included while its repair keeps it away.
    """
    alive = {name for name, one in received.items() if one.at is not None}
    in_repair = {name for name, one in memory.nodes.items() if one.record.phase in _IN_REPAIR}
    names = (facts.keys() & (alive | memory.nodes.keys())) | in_repair
    return {
        name: Known(
            name=name,
            facts=facts.get(name),
            received=received.get(name),
            remembered=memory.nodes.get(name),
            verdict=received.get(verdict_name(name)),
        )
        for name in sorted(names - memory.unreadable)
    }


def _digest(*parts: str) -> str:
    """Return sixteen characters derived from the parts, the same in every process."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
