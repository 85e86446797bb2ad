"""Which new node replaces which that leaves: pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.adapters.kubernetes.nodes.node import NodeState
from holdfast.model.nodes import NodeRecord, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """What must be known of a node that is being replaced after its Node object is gone."""

    record: NodeRecord
    provider_id: str
    group: str
    uid: str
    """Of its Node object."""


def successors(
    states: Mapping[str, NodeState], leaving: Mapping[str, Leaving], taken: Iterable[str]
) -> dict[str, str]:
    """Pairs ``new -> leaving`` for all leaving nodes whose replacement has appeared.

    A replacement is of the same group, came after the replacement was ordered, and has neither a
    record nor a predecessor. Who has waited longest gets the node that came first. A node that
    comes back by its own name replaces itself and is not in the answer.

    Args:
        states: all nodes that may be looked after.
        leaving: all nodes that are being replaced.
        taken: those of them that have a successor already.

    """
    has_one = set(taken)
    waiting = sorted(
        (_ordered_at(one), name)
        for name, one in leaving.items()
        if name not in has_one and _is_ordered(one) and _is_old(states.get(name), one)
    )
    new = sorted(
        (state.created_at, state.name)
        for state in states.values()
        if _is_free(state) and state.name not in leaving
    )
    pairs: dict[str, str] = {}
    for ordered_at, name in waiting:
        for created_at, candidate in new:
            if (
                _is_later(created_at, ordered_at)
                and candidate not in pairs
                and _same_group(states[candidate], leaving[name])
            ):
                pairs[candidate] = name
                break
    return pairs


def undecided(states: Mapping[str, NodeState], leaving: Mapping[str, Leaving]) -> frozenset[str]:
    """New nodes that nobody may look after yet: they may replace a node that leaves.

    Its order was recorded, but not its answer, because the controller died between the two. The
    next round repeats the order; a node that was given to jobs before that would be a replacement
    no more, and another would be waited for in vain.
    """
    unanswered = [one for one in leaving.values() if _is_unanswered(one)]
    return frozenset(
        state.name
        for state in states.values()
        if _is_free(state)
        and state.name not in leaving
        and any(
            _same_group(state, one) and _is_later(state.created_at, _ordered_at(one))
            for one in unanswered
        )
    )


def is_same_machine(state: NodeState, leaving: Leaving | None) -> bool:
    """Whether a node is still the one that leaves, or none of its name does."""
    return leaving is None or state.provider_id == leaving.provider_id


def _is_free(state: NodeState) -> bool:
    return state.record is None and state.replaces is None and not state.is_control_plane


def _is_ordered(leaving: Leaving) -> bool:
    """Whether a replacement may come: its order was accepted, or its response was lost."""
    remediation = leaving.record.remediation
    if remediation is None or leaving.record.phase is not Phase.REPLACING:
        return False
    was_accepted = (
        remediation.ordered_at is not None or remediation.replacements > 1
    )  # or the first was
    return was_accepted or remediation.is_outcome_unknown


def _is_unanswered(leaving: Leaving) -> bool:
    remediation = leaving.record.remediation
    is_requested = remediation is not None and remediation.retry_at is None
    return leaving.record.phase is Phase.REPLACING and is_requested and not _is_ordered(leaving)


def _is_later(created_at: datetime, ordered_at: datetime) -> bool:
    """Whether a node came after an order; its time is in whole seconds."""
    return created_at >= ordered_at.replace(microsecond=0)


def _ordered_at(leaving: Leaving) -> datetime:
    """Not ``remediation.ordered_at``, which is that of the last repetition."""
    return leaving.record.phase_since


def _is_old(state: NodeState | None, leaving: Leaving) -> bool:
    """Whether no new node bears the name of the one that leaves."""
    return state is None or is_same_machine(state, leaving)


def _same_group(state: NodeState, leaving: Leaving) -> bool:
    """Whether two nodes are of one group; those without a group label form one of their own."""
    return state.group == leaving.group
