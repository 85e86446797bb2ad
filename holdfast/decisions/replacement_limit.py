"""Limit of automatic replacements per hour and per day: slow forgery and slow false positives.

``max_unavailable`` and the circuit breaker limit what happens at once. A detector that is wrong, or
deceived, about one node at a time passes both; beyond what hardware does, a person approves.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.policy import RemediationPolicy
from holdfast.kit.units import DAY, HOUR
from holdfast.model.actions import Deferred, Drain, NodeAction, Reassign, Replace
from holdfast.model.health import Remedy
from holdfast.model.nodes import NodeRecord, NodeView, Phase

_COMMITTED: Final = (Phase.DRAINING, Phase.REPLACING)
_FAILURES_PER_NODE_DAY: Final = 0.0065
"""Meta's RSC-1: 6.5 failures per 1,000 node-days (arXiv 2410.21680). Llama 3 had 419 unexpected
interruptions in 54 days on 2,048 nodes, which is 3.8 (arXiv 2407.21783)."""

_DEVIATIONS: Final = 6
_ALWAYS: Final = 10
"""Replacements that are allowed whatever the size: a rack may fail at once, and the people of a
small cluster see each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementRate:
    """Automatic replacements, with those that are about to be ordered, and their limits."""

    last_hour: int
    per_hour: int
    last_day: int
    per_day: int

    @property
    def room(self) -> int:
        """Number of further replacements that may begin now."""
        return max(0, min(self.per_hour - self.last_hour, self.per_day - self.last_day))

    @property
    def why(self) -> str:
        """The limit that is reached, for messages."""
        if self.last_day >= self.per_day:
            return f"replacement limit reached ({self.last_day} of {self.per_day} in 24h)"
        return f"replacement limit reached ({self.last_hour} of {self.per_hour} in 1h)"


@dataclass(frozen=True, slots=True)
class Rated:
    """What the limit allows and defers."""

    actions: list[NodeAction]
    drains: list[tuple[NodeView, Drain]]
    deferred: Sequence[Deferred] = ()
    ends_at: datetime | None = None
    """When the next replacement leaves a window; None if nothing is deferred."""


def replacement_rate(
    nodes: Iterable[NodeView], size: int, policy: RemediationPolicy, now: datetime
) -> ReplacementRate:
    """Return the rate of automatic replacements of a cluster of ``size`` nodes."""
    times = [at for node in nodes for at in _replacements(node.record, now)]
    hour, day = policy.replacements_per_hour, policy.replacements_per_day
    return ReplacementRate(
        last_hour=sum(at > now - HOUR for at in times),
        per_hour=expected_limit(size, HOUR) if hour is None else hour.of(size),
        last_day=sum(at > now - DAY for at in times),
        per_day=expected_limit(size, DAY) if day is None else day.of(size),
    )


def expected_limit(size: int, window: timedelta) -> int:
    """Return how many of ``size`` nodes may fail in ``window``, far beyond published rates.

    The expected number, 6 standard deviations of a Poisson process, and 10: for 2,048 nodes 46 a
    day, of which 13 are expected.
    """
    expected = size * _FAILURES_PER_NODE_DAY * (window / DAY)
    return math.ceil(expected + _DEVIATIONS * math.sqrt(expected)) + _ALWAYS


def within_replacement_limit(
    actions: Sequence[NodeAction],
    drains: list[tuple[NodeView, Drain]],
    nodes: Sequence[NodeView],
    size: int,
    policy: RemediationPolicy,
    now: datetime,
) -> Rated:
    """Return the actions and drains that the limit allows, those that it defers, and when it ends.

    It applies when a node is to be drained for a replacement, and when a repair becomes a
    replacement later; replacements that a person has requested are approved, and are not counted.
    """
    known = {node.name: node for node in nodes}
    begun = sorted(one.node for one in actions if _begins(one, known[one.node].record))
    waiting = sorted(
        (node.record.phase_since, node.name) for node, _ in drains if _replaces(node.record)
    )
    candidates = [*begun, *(name for _, name in waiting)]
    if not candidates:
        return Rated(list(actions), drains)
    rate = replacement_rate(nodes, size, policy, now)
    refused = frozenset(candidates[rate.room :])
    why = f"{rate.why}; to approve this replacement, run: holdfast nodes replace "
    return Rated(
        [one for one in actions if one.node not in refused],
        [one for one in drains if one[0].name not in refused],
        [Deferred(node=name, why=why + name) for name in sorted(refused)],
        _ends_at(nodes, now) if refused else None,
    )


def recent_replacements(record: NodeRecord, now: datetime) -> tuple[datetime, ...]:
    """Return ``NodeRecord.replaced_at`` after the present replacement, without what is too old."""
    remediation = record.remediation
    times = record.replaced_at
    if remediation is not None and remediation.remedy is Remedy.REPLACE:
        ordered = () if remediation.request_id else (remediation.ordered_at or record.phase_since,)
        times = (*times, *ordered)
    return tuple(at for at in times if at > now - DAY)


def _replacements(record: NodeRecord, now: datetime) -> Iterable[datetime]:
    """Yield the times of the replacements of one node; ``now`` for one that is to be ordered."""
    yield from record.replaced_at
    remediation = record.remediation
    if record.phase in _COMMITTED and _replaces(record) and remediation is not None:
        yield remediation.ordered_at or now


def _replaces(record: NodeRecord) -> bool:
    """Return whether a remediation replaces the machine, and no person has requested it."""
    remediation = record.remediation
    is_replacement = remediation is not None and remediation.remedy is Remedy.REPLACE
    return is_replacement and remediation is not None and not remediation.request_id


def _begins(action: NodeAction, record: NodeRecord) -> bool:
    """Return whether a repair that was not to replace the machine becomes a replacement."""
    remediation = record.remediation
    if remediation is not None and remediation.request_id:
        return False
    if record.phase in _COMMITTED and _replaces(record):
        return False
    match action:
        case Replace(request_id=""):
            return True
        case Reassign(remedy=Remedy.REPLACE, request_id=""):
            return record.phase is Phase.DRAINING  # in quarantine, its drain is limited
    return False


def _ends_at(nodes: Iterable[NodeView], now: datetime) -> datetime | None:
    """Return when the next replacement leaves one of the windows."""
    times = [at for node in nodes for at in _replacements(node.record, now)]
    ends = (at + window for at in times for window in (HOUR, DAY))
    return min((one for one in ends if one > now), default=None)
