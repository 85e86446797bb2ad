"""Which new node replaces which leaving node."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from holdfast.model.nodes import NodeRecord, Phase


class Arrival(NamedTuple):
    """A node that the platform lists, reduced to what decides whether it is a replacement."""

    name: str
    provider_id: str
    group: str
    """Group label; nodes without one have an empty string and form a group of their own."""

    created_at: datetime
    """Creation time; platforms may round it down to whole seconds."""

    is_free: bool
    """Whether the node may become a replacement: it has no record and no predecessor yet."""

    replaces: str | None = None
    """Name of its predecessor, once that is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingNode:
    """State of a node under replacement that must outlive the node's own object."""

    record: NodeRecord
    provider_id: str
    group: str
    uid: str
    """UID of the node's object."""

    addresses: tuple[str, ...] = ()
    """As in ``NodeView``."""


def successors(arrivals: Collection[Arrival], leaving: Mapping[str, LeavingNode]) -> dict[str, str]:
    """Return pairs ``new -> leaving`` of all leaving nodes whose replacement has appeared.

    A replacement has the same group, was created after the replacement was ordered, and has
    neither a record nor a predecessor. Pairs the oldest replacement order with the oldest new node.
    A node that returns under its own name replaces itself and is not in the result.

    Args:
        arrivals: all nodes of the platform.
        leaving: all nodes that are being replaced, by name.

    """
    has_one = {  # names are used again: one that came before the order replaced another machine
        node.replaces
        for node in arrivals
        if node.replaces is not None
        and node.replaces in leaving
        and _is_later(node.created_at, _ordered_at(leaving[node.replaces]))
    }
    known = {node.name: node for node in arrivals}
    waiting = sorted(
        (_ordered_at(one), name)
        for name, one in leaving.items()
        if name not in has_one and _is_ordered(one) and _is_old(known.get(name), one)
    )
    new = sorted(
        (node.created_at, node.name)
        for node in arrivals
        if node.is_free and node.name not in leaving
    )
    pairs: dict[str, str] = {}
    for ordered_at, name in waiting:
        for created_at, candidate in new:
            if (
                _is_later(created_at, ordered_at)
                and candidate not in pairs
                and known[candidate].group == leaving[name].group
            ):
                pairs[candidate] = name
                break
    return pairs


def undecided(arrivals: Collection[Arrival], leaving: Mapping[str, LeavingNode]) -> frozenset[str]:
    """Return the new nodes that must not be managed yet: they may replace a leaving node.

    Either an order was recorded, but not its response, because the controller died between the
    two; the next round repeats the order. Or the node is a successor, which is not recorded yet.
    If it were given to jobs before that, it could not become the replacement any more, and the
    leaving node would wait for another in vain.
    """
    unanswered = [one for one in leaving.values() if _is_unanswered(one)]
    return frozenset(
        node.name
        for node in arrivals
        if node.is_free
        and node.name not in leaving
        and any(
            node.group == one.group and _is_later(node.created_at, _ordered_at(one))
            for one in unanswered
        )
    ).union(successors(arrivals, leaving))


def is_same_machine(provider_id: str, leaving: LeavingNode | None) -> bool:
    """Return whether a node still is the machine that leaves, or no node of its name leaves."""
    return leaving is None or provider_id == leaving.provider_id


def _is_ordered(leaving: LeavingNode) -> bool:
    """Return whether a replacement may come: its order was accepted, or its response was lost."""
    remediation = leaving.record.remediation
    if remediation is None or leaving.record.phase is not Phase.REPLACING:
        return False
    was_accepted = remediation.ordered_at is not None or remediation.replacements > 1  # the first
    return was_accepted or remediation.is_outcome_unknown


def _is_unanswered(leaving: LeavingNode) -> bool:
    remediation = leaving.record.remediation
    is_requested = remediation is not None and remediation.retry_at is None
    return leaving.record.phase is Phase.REPLACING and is_requested and not _is_ordered(leaving)


def _is_later(created_at: datetime, ordered_at: datetime) -> bool:
    """Return whether a node was created after an order, with creation times in whole seconds."""
    return created_at >= ordered_at.replace(microsecond=0)


def _ordered_at(leaving: LeavingNode) -> datetime:
    """Return the time of the first order; ``remediation.ordered_at`` is that of the last."""
    return leaving.record.phase_since


def _is_old(arrival: Arrival | None, leaving: LeavingNode) -> bool:
    """Return whether no new machine has the name of the leaving node."""
    return arrival is None or is_same_machine(arrival.provider_id, leaving)
