"""Which launchers of a job get ranks, and which of their nodes others should replace: pure.

The agent of a node reports its faults, and each launcher passes on that of its own node. It decides
where the ranks of the job run; no repair of a node results from it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.decisions.launch_events import Member, NodeFault
from holdfast.decisions.restart_rungs import Means, RestartBudget, RestartHistory
from holdfast.kit.units import one_line
from holdfast.model.health import Fault, Urgency

_TEXT_CHARS: Final = 200
"""Maximum length of a fault in a message between launchers, which has 64 KiB."""

_SHOWN_FAULTS: Final = 16
"""Maximum number of nodes whose faults such a message has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundNodes:
    """Nodes of a round whose ranks have to restart. A node is named by its launcher."""

    cause: str
    """Node that counts as the cause."""

    leaving: tuple[str, ...]
    """Nodes that others replace, those without which the ranks cannot restart first."""

    means: Means


def node_fault(faults: Iterable[Fault]) -> NodeFault | None:
    """Return the fault of a node for which its ranks should leave; None if they may stay."""
    found = [fault for fault in faults if fault.remedy.touches_node]
    found.sort(key=lambda fault: fault.urgency is Urgency.DEFERRED)
    if not found:
        return None
    text = one_line(f"{found[0].reason}: {found[0].message}", _TEXT_CHARS)
    return NodeFault(text=text, is_urgent=found[0].urgency is Urgency.IMMEDIATE)


def is_usable(member: Member) -> bool:
    """Return whether ranks may start on a node: it is not being repaired."""
    return member.fault is None or not member.fault.is_urgent


def fault_texts(members: Mapping[str, Member], names: Iterable[str]) -> str:
    """Return the faults of nodes, of the first 16 with one; empty if they have none."""
    faults = ((name, members[name].fault) for name in names if name in members)
    texts = [f"{name} is being repaired: {one.text}" for name, one in faults if one]
    more = len(texts) - _SHOWN_FAULTS
    end = [f"{more} more nodes are being repaired"] if more > 0 else []
    return "; ".join([*texts[:_SHOWN_FAULTS], *end])


def round_nodes(
    active: Collection[str],
    members: Mapping[str, Member],
    history: RestartHistory,
    budget: RestartBudget,
    *,
    failed: str,
    moves: bool = False,
    can_exchange: bool = True,
) -> RoundNodes:
    """Return with which nodes the ranks of a round can restart.

    Args:
        active: nodes of the round.
        members: launchers that are connected.
        history: restarts before this one.
        budget: budget of the job.
        failed: node that failed.
        moves: whether its ranks should run on another node.
        can_exchange: whether launchers on other nodes can join.

    """
    missing = [name for name in active if name not in members or not is_usable(members[name])]
    cause = missing[0] if missing and failed not in missing else failed
    bad = {
        name
        for name, member in members.items()
        if member.fault is not None or history.is_offender(name, budget, int(name == cause))
    }
    moving = {failed} if moves else set()
    avoided = [name for name in active if name in bad | moving and name not in missing]
    avoided.sort(key=lambda name: name != failed)
    spares = {name for name in members if name not in active and is_usable(members[name])}
    means = Means(
        missing=len(missing),
        spares=len(spares),
        avoided=len(avoided),
        better=len(spares - bad),
        can_exchange=can_exchange,
        obstacle="" if can_exchange else fault_texts(members, missing),
    )
    return RoundNodes(cause=cause, leaving=(*missing, *avoided), means=means)


def next_nodes(
    active: Collection[str],
    members: Mapping[str, Member],
    leaving: Collection[str],
    history: RestartHistory,
    settings: tuple[int, RestartBudget],
) -> tuple[str, ...]:
    """Return the nodes of the next round by node rank: those that stay keep theirs.

    Repeat offenders, nodes whose repair waits for the end of the job, and those that have just left
    are the last ones that are chosen. One that is being repaired is chosen only if the job has not
    run yet, and there are no others.

    Args:
        active: nodes of the last round; empty before the first one.
        members: launchers that are connected, at least as many as nodes are needed.
        leaving: nodes that others replace.
        history: restarts up to now.
        settings: number of nodes of a round, and the budget of the job.

    """
    nodes, budget = settings
    stay = {name for name, one in members.items() if is_usable(one) and name not in leaving}
    kept = [name if name in stay else "" for name in active]
    rest = [name for name in members if name not in kept]
    if not active:
        rest.sort(key=lambda name: members[name].order)

    def reluctance(name: str) -> tuple[bool, bool, bool]:
        is_avoided = members[name].fault is not None or history.is_offender(name, budget)
        return not is_usable(members[name]), name in leaving, is_avoided

    rest.sort(key=reluctance)
    places = kept + [""] * (nodes - len(kept))
    return tuple(name or rest.pop(0) for name in places)
