"""From what is known of a node to what the core gets to see, and back to its mark: pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import Author, our_reason
from holdfast.adapters.slurm.nodes.boots import is_other_slurmd
from holdfast.adapters.slurm.nodes.check_results import faults_of, verdict_name
from holdfast.adapters.slurm.nodes.reports import ReceivedReport
from holdfast.adapters.slurm.nodes.state import Memory, Remembered
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Reason
from holdfast.model.nodes import CheckResult, NodeRecord, NodeView, PairOutcome, Phase
from holdfast.model.requests import Request

_COMING: Final = frozenset((Phase.JOINING, Phase.REBOOTING))
"""Phases in which it is the agent's word in the present boot that counts."""

_TIMEOUT: Final = timedelta(minutes=2)
"""From the first word of an agent to that of slurmd, which are started by the same boot."""

_REBOOTED: Final = "Node unexpectedly rebooted"
_SETTLES: Final = timedelta(minutes=1)
"""For so long after its release Slurm may take a node down for the reboot of its repair."""

_NEVER_CAME: Final = frozenset((Reason.NODE_NEVER_JOINED, Reason.NODE_START_FAILED))
_MAINTENANCE: Final = frozenset(("MAINT", "MAINTENANCE"))
_AWAY: Final = frozenset((Phase.REBOOTING, Phase.REPLACING))


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """All that is known of one node."""

    name: str
    facts: NodeFacts | None
    """None while Slurm does not know it."""

    heard: ReceivedReport | None
    remembered: Remembered | None
    verdict: ReceivedReport | None = None
    """What a check found on the node that was no job of ours."""

    @property
    def machine(self) -> str:
        """Names the machine behind the node: as its agent does, else as Slurm does."""
        if self.heard is not None and self.heard.machine:
            return self.heard.machine
        if self.facts is not None and self.facts.instance_id:
            return self.facts.instance_id
        if self.remembered is not None and self.remembered.machine:
            return self.remembered.machine
        return f"slurm:{self.name}"


def record_of(known: Known, first_seen: datetime) -> NodeRecord:
    """The record of a node; of one that has none yet it is that of a node that joins."""
    if known.remembered is not None:
        return known.remembered.record
    return NodeRecord(phase=Phase.JOINING, phase_since=first_seen)


def request_of(facts: NodeFacts | None, requested_at: datetime) -> Request | None:
    """What a person asks for with state and reason of a node."""
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
    """Why no repair may begin: a person said so, or has closed the node for another purpose."""
    if hold or facts is None:
        return hold
    who = facts.reason_set.partition("@")[0] or "somebody"
    if facts.is_closed and facts.reason.author is Author.OTHER:
        return f"{who} has closed it in Slurm: {facts.reason.text}"
    if facts.state & _MAINTENANCE:
        return "it is reserved for maintenance in Slurm"
    return ""


def closed_by(facts: NodeFacts | None, record: NodeRecord) -> str:
    """Who keeps a node from jobs that Holdfast does not keep from them, and why; else empty."""
    is_ours = record.phase is not Phase.SCHEDULABLE
    return "" if facts is None or is_ours else facts.closed_by


def heard_at(
    known: Known, record: NodeRecord, now: datetime, answered_at: datetime | None
) -> datetime | None:
    """When a node was last heard; None before its first word in this boot.

    Args:
        known: the node.
        record: its record.
        now: the present time.
        answered_at: when its slurmd was last known to answer, or when this process began.

    """
    facts, heard = known.facts, known.heard
    at = None if heard is None else heard.at
    if record.phase in _COMING or _never_came(record):
        return now if at is not None and _is_back(known) else None
    if facts is not None and (
        facts.has_heartbeat or (facts.is_asleep and record.remediation is None)
    ):
        return now
    return max((one for one in (at, answered_at) if one is not None), default=None)


def _never_came(record: NodeRecord) -> bool:
    """Whether a node was given up before its slurmd answered; its agent alone changes nothing."""
    remediation = record.remediation
    is_closed = record.phase in (Phase.QUARANTINED, Phase.DRAINING)
    return is_closed and remediation is not None and remediation.reason in _NEVER_CAME


def node_view(
    known: Known,
    record: NodeRecord,
    memory: Memory,
    *,
    heard: datetime | None,
    jobs: tuple[str, ...],
    now: datetime,
    check: CheckResult | None = None,
    pair: PairOutcome | None = None,
) -> NodeView:
    """The node as the core sees it."""
    report = known.heard.report if known.heard is not None else None
    return NodeView(
        name=known.name,
        provider_id=known.machine,
        record=record,
        boot_id="" if report is None else report.boot_id,
        faults=() if report is None else (*report.faults, *faults_of(known.verdict, known.heard)),
        heartbeat_at=heard,
        join_error="" if known.facts is None else known.facts.start_error,
        request=memory.requests.get(known.name) or request_of(known.facts, now),
        held=held_by(known.facts, memory.holds.get(known.name, "")),
        closed=closed_by(known.facts, record),
        running_jobs=jobs,
        group="" if known.facts is None else known.facts.partition,
        check=check,
        pair=pair,
    )


def is_followed(record: NodeRecord) -> bool:
    """Whether it matters which jobs run on a node: it is drained, or waits for them to end."""
    if record.phase is Phase.DRAINING:
        return True
    remediation = record.remediation
    waits = remediation is not None and remediation.urgency is Urgency.DEFERRED
    return record.phase is Phase.QUARANTINED and waits


def remembered(known: Known, record: NodeRecord) -> Remembered:
    """What to store of a node with a new record."""
    before = known.remembered
    slurmd = "" if before is None else before.slurmd
    is_leaving = record.phase in _AWAY and (before is None or before.record.phase not in _AWAY)
    if is_leaving and known.facts is not None:
        slurmd = known.facts.slurmd
    if record.remediation is None:
        slurmd = ""
    return Remembered(record=record, machine=known.machine, slurmd=slurmd)


def closing_reason(facts: NodeFacts, record: NodeRecord) -> str | None:
    """The reason to close a node with; None if it is closed as it should be, or is not to be.

    A node that somebody else has closed is left to them.
    """
    if record.phase is Phase.SCHEDULABLE:
        return None
    if facts.is_closed and facts.reason.author is Author.OTHER:
        return None
    if "FAIL" in facts.state and facts.start_error:
        return None  # people find Slurm's own words in sinfo -R
    wanted = our_reason(record)
    is_said = facts.reason.text == wanted or facts.reason.text.startswith(f"{wanted} :")
    return None if "FAIL" in facts.state and is_said else wanted


def is_to_open(facts: NodeFacts, record: NodeRecord, now: datetime, *, was_closed: bool) -> bool:
    """Whether a node is to be given to jobs again: whoever closed it was ours, or Slurm itself.

    A node that was just released may be taken down by Slurm once more for the reboot of its repair:
    slurmctld judges by boot times that slurmd tells to a second or so.

    Args:
        facts: the node.
        record: its new record.
        now: the present time.
        was_closed: whether it was ours to keep from jobs until now.

    """
    if record.phase is not Phase.SCHEDULABLE or not facts.is_closed:
        return False
    if _is_down_for_boot(facts) and now - record.phase_since < _SETTLES:
        return True
    ours = (Author.HOLDFAST, *((Author.NOBODY, Author.SLURM) if was_closed else ()))
    return facts.reason.author in ours


def _is_down_for_boot(facts: NodeFacts) -> bool:
    """Whether Slurm took a node down as it has booted.

    24.11 says so only where there was no reason before, and our release leaves a blank one. Nobody
    else can take a node down without a reason.
    """
    text = facts.reason.text
    return text.startswith(_REBOOTED) or (not text and "DOWN" in facts.state)


def is_renewed(record: NodeRecord) -> bool:
    """Whether the machine of a node that joins has replaced another."""
    remediation = record.remediation
    is_replaced = remediation is not None and remediation.remedy is Remedy.REPLACE
    return record.phase is Phase.JOINING and is_replaced


def is_lost(known: Known, now: datetime) -> bool:
    """Whether a machine has come back for its agent, and not for Slurm.

    A new machine often has another address, and that of a static node is what slurm.conf says.
    """
    facts, heard, before = known.facts, known.heard, known.remembered
    if facts is None or heard is None or before is None or facts.has_heartbeat:
        return False
    since = before.record.phase_since
    joins = before.record.phase is Phase.JOINING and now - since >= _TIMEOUT
    return joins and heard.at is not None and heard.at > since


def has_leftovers(known: Known) -> bool:
    """Whether Slurm waits for jobs to end on a machine that has booted since they ran there.

    For those of a machine that was replaced it may wait for ever.
    """
    facts, before = known.facts, known.remembered
    if facts is None or before is None or before.record.phase is not Phase.JOINING:
        return False
    return "COMPLETING" in facts.state and bool(before.slurmd) and _is_back(known)


def _is_back(known: Known) -> bool:
    """Whether slurmd answers, and is another than when the repair of the node began."""
    facts, before = known.facts, known.remembered
    if facts is None or not facts.has_heartbeat or "INVALID_REG" in facts.state:
        return False
    was = "" if before is None else before.slurmd.strip("/")
    return not was or is_other_slurmd(facts.slurmd, was)


def known_nodes(
    facts: Mapping[str, NodeFacts], heard: Mapping[str, ReceivedReport], memory: Memory
) -> dict[str, Known]:
    """All nodes that are ours to look after, by name: each has an agent that lives, or a record.

    One that Slurm does not know any more is among them while its repair keeps it away.
    """
    alive = {name for name, one in heard.items() if one.at is not None}
    away = {name for name, one in memory.nodes.items() if one.record.phase in _AWAY}
    names = (facts.keys() & (alive | memory.nodes.keys())) | away
    return {
        name: Known(
            name=name,
            facts=facts.get(name),
            heard=heard.get(name),
            remembered=memory.nodes.get(name),
            verdict=heard.get(verdict_name(name)),
        )
        for name in sorted(names - memory.unreadable)
    }


def _digest(*parts: str) -> str:
    """Sixteen characters that name these parts, the same in every process."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
