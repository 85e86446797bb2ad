"""Plans what the controller would do with nodes, from their states in Slurm.

The core decides, for nodes that were healthy until now and whose agents report no fault. A repair
in progress is known only to its controller, and is left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.slurm.commands.node_text import NodeFacts
from holdfast.adapters.slurm.commands.reasons import Author, our_reason
from holdfast.adapters.slurm.nodes.state import Memory
from holdfast.adapters.slurm.nodes.views import Known, node_view
from holdfast.decisions.lifecycle import accepted, after
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.kit.units import format_duration
from holdfast.model.actions import Drain, NodeAction, Quarantine, Reboot, Replace
from holdfast.model.nodes import ClusterView, NodeRecord, NodeView, Phase

_BUSY: Final = frozenset(("ALLOCATED", "MIXED", "COMPLETING"))
_BASE: Final = _BUSY | {"IDLE", "DOWN", "UNKNOWN", "FUTURE", "ERROR"}
"""Base states of a node; all others are flags."""

_ANY_JOB: Final = ("its jobs",)
_ROUNDS: Final = 5
"""A node takes three steps until its repair is ordered; the budget may let other nodes go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """Observed state and planned steps of one node."""

    node: str
    state: str
    reason: str
    seen: str
    steps: tuple[str, ...]
    """Steps in order; empty if nothing would be done."""

    waits: str
    """Why the next step would have to wait; empty if it would not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Plans of all nodes, and what applies to all of them."""

    nodes: tuple[NodePlan, ...]
    stopped: str
    """Why all repairs would be paused; empty if they may begin."""


def plan_for(nodes: Mapping[str, NodeFacts], policy: RemediationPolicy, now: datetime) -> Planned:
    """Decide repeatedly, until no step is left that the current states allow."""
    views = {
        one.name: _view(one, policy, now) for one in nodes.values() if not _is_under_repair(one)
    }
    steps: dict[str, list[str]] = {name: [] for name in nodes}
    waits: dict[str, str] = {}
    stopped = ""
    for _ in range(_ROUNDS):
        found = decide(ClusterView(nodes=tuple(views.values())), policy, now)
        stopped = stopped or ("" if found.trip is None else found.trip.reason)
        waits = {one.node: one.why for one in found.deferred}
        for action in found.actions:
            view = views[action.node]
            record = after(view, action, now)
            steps[action.node] += _step(action, view, record, policy)
            if isinstance(action, Reboot | Replace):
                record = accepted(record, now)
            left = () if isinstance(action, Drain) else view.running_jobs
            views[action.node] = replace(view, record=record, running_jobs=left)
    return Planned(
        nodes=tuple(
            NodePlan(
                node=name,
                state=_state(one),
                reason=one.reason.text,
                seen=_seen(one),
                steps=tuple(steps[name]),
                waits=waits.get(name, ""),
            )
            for name, one in sorted(nodes.items())
        ),
        stopped=stopped,
    )


def _is_under_repair(facts: NodeFacts) -> bool:
    """Whether the repair of a node is in progress."""
    return facts.is_closed and facts.reason.author is Author.HOLDFAST


def _view(facts: NodeFacts, policy: RemediationPolicy, now: datetime) -> NodeView:
    record = NodeRecord(phase=Phase.SCHEDULABLE, phase_since=now - timedelta(days=1))
    known = Known(name=facts.name, facts=facts, received=None, remembered=None)
    is_there = facts.has_heartbeat or facts.is_asleep
    heartbeat_at = now if is_there else now - policy.heartbeat_timeout
    jobs = _ANY_JOB if facts.state & _BUSY else ()
    return node_view(known, record, Memory(), heartbeat_at=heartbeat_at, jobs=jobs, now=now)


def _state(facts: NodeFacts) -> str:
    """Return state and flags in Slurm's order."""
    return "+".join(sorted(facts.state, key=lambda word: (word not in _BASE, word)))


def _seen(facts: NodeFacts) -> str:
    who, reason = facts.reason_set.partition("@")[0] or "somebody", facts.reason
    if facts.is_asleep:
        return "powered down by power saving, or changing its power state"
    if not facts.is_closed:
        return "accepts jobs" if facts.has_heartbeat else "it does not respond"
    suggestion = f"; did you mean {reason.suggestion}?" if reason.suggestion else ""
    return {
        Author.NONE: "out of service without a reason",
        Author.SLURM: "taken out of service by Slurm",
        Author.HOLDFAST: "taken out of service by Holdfast; its controller handles it",
        Author.REQUEST: f"{who} requests: {reason.verb}",
        Author.OTHER: f"taken out of service by {who}; left unchanged{suggestion}",
    }[reason.author]


def _step(
    action: NodeAction, view: NodeView, record: NodeRecord, policy: RemediationPolicy
) -> Iterator[str]:
    match action:
        case Quarantine():
            yield f"set it to FAIL with the reason {our_reason(record)!r}"
        case Drain() if view.running_jobs:
            yield f"drain its jobs, {format_duration(policy.drain_timeout)} at most"
        case Reboot():
            yield "order its reboot"
        case Replace():
            yield "order its replacement"
