"""Tests between nodes in a deep health check: which nodes are paired, and the result.

Nodes of one instance group and type that have passed alone are tested in pairs, round after round,
as ``pairing`` chooses, until it is known of each whether it is bad. A node without a peer borrows a
node that has no job, for as long as it needs one. All state is in the records: a new controller
continues a round where the previous one stopped.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from holdfast.decisions.faults import node_faults, observed_deadline
from holdfast.decisions.node_labels import is_borrowed
from holdfast.decisions.pair_verdicts import NodeTest, verdict
from holdfast.decisions.pairing import Localization, PairTest, localize, next_pairs, pair_of
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.actions import NodeAction, Pair, Quarantine, Release
from holdfast.model.health import Fault, Remedy, Severity, Urgency
from holdfast.model.names import Condition, DeepCheck, Reason
from holdfast.model.nodes import NodeView, Pairing, PairOutcome, Phase, Pool

ROUNDS: Final = 12
"""Number of tests of one node, after which its verdict follows from the results so far. Twelve find
99 of 100 bad nodes of 64 that fail half of their tests (``make bench``)."""

SILENT: Final = 2
"""Number of inconclusive tests of a node, after which no more are made."""

ENOUGH: Final = 4
"""With fewer nodes, a node without jobs is borrowed after a failed test: between two nodes, tests
can never show which is bad."""

PEER_WAIT: Final = timedelta(minutes=2)
"""How long a single node waits for an idle node to be found."""

PEER_POLL: Final = timedelta(seconds=2)
"""Interval of checking for an idle node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlan:
    """Actions to take now, and the time of the next evaluation."""

    actions: tuple[NodeAction, ...] = ()
    wake_at: datetime | None = None


def has_pairs(node: NodeView, policy: RemediationPolicy) -> bool:
    """Return whether the check of a node continues with tests between nodes."""
    record = node.record
    if record.pairing is not None:
        return True
    if record.kinds:
        return DeepCheck.CONNECTIVITY in record.kinds
    return policy.deep_check_pairs


def pools_short_of_peers(nodes: Iterable[NodeView]) -> frozenset[Pool]:
    """Return the pools in which too few nodes are under test between nodes.

    Idle nodes of these pools may be borrowed as test peers.

    Args:
        nodes: all nodes, or at least all that are not schedulable.

    """
    present: Counter[Pool] = Counter()
    for node in nodes:
        if node.record.phase is Phase.CHECKING and node.record.pairing is not None:
            present[pool_of(node)] += not is_borrowed(node.record)
    return frozenset(pool for pool, count in present.items() if 0 < count < ENOUGH)


def release_borrowed(
    node: NodeView, nodes: Iterable[NodeView], policy: RemediationPolicy, now: datetime
) -> Release | None:
    """Return the release of a borrowed node that cannot or need not be a test peer any more.

    ``nodes``: all nodes, or at least all that are not schedulable.
    """
    if not is_borrowed(node.record) or node.record.phase is Phase.CHECKING:
        return None
    if node.heartbeat_at is None or node_faults(node, policy, now):
        return None
    is_needed = not node.running_jobs and pool_of(node) in pools_short_of_peers(nodes)
    return None if is_needed else Release(node=node.name)


def decide_pairs(
    nodes: Sequence[NodeView],
    others: Iterable[NodeAction],
    policy: RemediationPolicy,
    now: datetime,
    *,
    size: int,
    may_borrow: bool,
) -> PairPlan:
    """Return the next actions of the tests between nodes.

    Args:
        nodes: all nodes of the cluster.
        others: other actions of this round.
        policy: limits on concurrent checks and their duration.
        now: current time.
        size: number of nodes of which limits are shares.
        may_borrow: whether nodes without jobs may be borrowed.

    """
    checking = sum(node.record.phase is Phase.CHECKING for node in nodes)
    if not checking:
        return PairPlan()
    busy = {action.node for action in others}
    arriving = sum(map(_is_arriving, nodes))
    room = policy.max_checking.of(size) - checking - arriving if may_borrow else 0
    members: defaultdict[Pool, list[NodeView]] = defaultdict(list)
    for node in nodes:
        members[pool_of(node)].append(node)
    actions: list[NodeAction] = []
    wake_times: list[datetime] = []
    for pool in members.values():
        if any(node.record.phase is Phase.CHECKING for node in pool):
            tests = _Tests(pool, busy, policy, now, room)
            chosen = list(tests.actions())
            room -= sum(isinstance(action, Quarantine) for action in chosen)
            actions += chosen
            wake_times += tests.wake_times
    return PairPlan(actions=tuple(actions), wake_at=min(wake_times, default=None))


def pool_of(node: NodeView) -> Pool:
    """Return the pool in which a node finds test peers."""
    return (node.group, node.instance_type)


def _is_arriving(node: NodeView) -> bool:
    """Return whether a borrowed node has not begun its tests yet."""
    return is_borrowed(node.record) and node.record.phase is not Phase.CHECKING


class _Tests:
    """Tests of one pool."""

    def __init__(
        self,
        pool: Sequence[NodeView],
        busy: Collection[str],
        policy: RemediationPolicy,
        now: datetime,
        room: int,
    ) -> None:
        self._pool, self._busy, self._policy, self._now = pool, busy, policy, now
        self._free_slots = room
        self._present = {
            node.name: node
            for node in pool
            if node.record.phase is Phase.CHECKING
            and node.record.pairing is not None
            and node.name not in busy
        }
        self._pairings = {
            node.name: node.record.pairing for node in pool if node.record.pairing is not None
        }
        self._running = {
            name
            for node in self._present.values()
            if (pairing := self._pairings[node.name]).partner
            for name in (node.name, pairing.partner)
        }
        self.wake_times: list[datetime] = []
        """Times of the next evaluation; complete once ``actions`` is exhausted."""

    def actions(self) -> Iterator[NodeAction]:
        """Yield the actions for the nodes, at most one for each."""
        yield from self._entering()
        noted = list(self._noted())
        if noted:
            yield from noted
        elif all(is_borrowed(node.record) for node in self._present.values()):
            for name in self._present:
                yield Release(node=name)
        elif self._running:
            yield from self._while_others_run()
        else:
            yield from self._between_rounds()

    def _entering(self) -> Iterator[NodeAction]:
        """Yield the start of tests for nodes that have just passed alone."""
        for node in self._pool:
            if (
                node.record.phase is Phase.CHECKING
                and node.record.pairing is None
                and node.check is not None
                and node.name not in self._busy
                and has_pairs(node, self._policy)
            ):
                yield Pair(node=node.name, pairing=Pairing(since=self._now, own=node.check))

    def _noted(self) -> Iterator[NodeAction]:
        """Yield records of the tests that have ended."""
        for name, node in self._present.items():
            pairing = self._pairings[name]
            if pairing.began_at is None:
                continue
            timeout = self._policy.pair_timeout
            due_at = (node.check_began_at or pairing.began_at) + timeout
            deadline = observed_deadline(node, due_at, timeout)
            over = node.pair
            if pairing.partner not in self._present:
                over = self._outcome(pairing, None, "the peer left before the test ended")
            elif over is None and not node.check_pending and self._now >= deadline:
                over = self._outcome(pairing, False, "the test timed out")  # noqa: FBT003
            if over is None:
                self.wake_times.append(deadline)
                continue
            tests = (*pairing.tests, over)
            yield Pair(node=name, pairing=replace(pairing, partner="", began_at=None, tests=tests))

    def _outcome(self, pairing: Pairing, passed: bool | None, detail: str) -> PairOutcome:  # noqa: FBT001
        return PairOutcome(
            partner=pairing.partner, passed=passed, ended_at=self._now, detail=detail
        )

    # results

    @cached_property
    def _made(self) -> dict[str, list[NodeTest]]:
        """Tests of each node: the peer, and the result.

        A test counts if both nodes still take part as they did then: a machine that replaced
        another has had no test.
        """
        began = min(self._pairings[name].since for name in self._present)
        made: defaultdict[str, list[NodeTest]] = defaultdict(list)
        for name, pairing in self._pairings.items():
            for test in pairing.tests:
                other = self._pairings.get(test.partner)
                if other is not None and test.ended_at >= max(began, pairing.since, other.since):
                    made[name].append((test.partner, test))
                    made[test.partner].append((name, test))
        return made

    @cached_property
    def _conclusive(self) -> list[PairTest]:
        return [
            PairTest(nodes=pair_of(name, other), passed=test.passed)
            for name, made in self._made.items()
            for other, test in made
            if test.passed is not None and test.partner == other
        ]

    @cached_property
    def _found(self) -> Localization:
        names = sorted(
            {*self._present, *(name for test in self._conclusive for name in test.nodes)}
        )
        return localize(names, self._conclusive)

    # rounds

    def _while_others_run(self) -> Iterator[NodeAction]:
        """Yield the remaining tests of a round of which some tests are running."""
        made = {
            name: len(self._made.get(name, ())) + (name in self._running) for name in self._present
        }
        round_now = max(made.values())
        late = [
            name for name, count in made.items() if count < round_now and name not in self._running
        ]
        yield from self._begun(late)

    def _between_rounds(self) -> Iterator[NodeAction]:
        over = set(self._over())
        for name in over:
            made = self._made.get(name, [])
            yield verdict(self._present[name], made, self._found, self._now)
        left = [name for name in self._present if name not in over]
        for name in left:
            since = self._present[name].record.phase_since
            self.wake_times.append(since + self._policy.deep_check_timeout)
        if not left:
            return
        borrowed = self._borrowed(left)
        if borrowed is not None:
            yield borrowed
        yield from self._begun(left)

    def _over(self) -> Iterator[str]:
        """Yield the nodes about which enough is known, or no more will be."""
        is_settled = self._found.is_settled
        is_alone = len(self._present) == 1 and not self._may_get_peer()
        for name, node in self._present.items():
            made = [test for _, test in self._made.get(name, ())]
            is_silent = len(made) >= SILENT and all(test.passed is None for test in made)
            deadline = node.record.phase_since + self._policy.deep_check_timeout
            is_late = len(made) >= ROUNDS or self._now >= deadline
            if is_settled or is_alone or is_silent or is_late:
                yield name

    def _begun(self, names: Sequence[str]) -> Iterator[NodeAction]:
        if len(names) < 2:
            return
        for owner, partner in next_pairs(sorted(names), self._conclusive):
            pairing = self._pairings[owner]
            begun = replace(pairing, partner=partner, began_at=self._now)
            yield Pair(node=owner, pairing=begun)

    # peers

    def _may_get_peer(self) -> bool:
        """Return whether a single node may still get a peer."""
        (node,) = self._present.values()
        if any(self._will_join(one) for one in self._pool):
            return True
        if self._free_slots < 1:
            return False
        waits_until = self._pairings[node.name].since + PEER_WAIT
        if self._now < waits_until:
            self.wake_times.append(min(self._now + PEER_POLL, waits_until))
        return bool(self._free) or self._now < waits_until

    def _will_join(self, node: NodeView) -> bool:
        """Return whether a node will join the tests soon."""
        if _is_arriving(node):
            return True
        is_checked = node.record.phase is Phase.CHECKING and node.record.pairing is None
        return is_checked and has_pairs(node, self._policy)

    @cached_property
    def _free(self) -> list[NodeView]:
        """Nodes without jobs that could be test peers."""
        return [
            node
            for node in self._pool
            if node.is_idle
            and node.record.phase is Phase.SCHEDULABLE
            and node.name not in self._busy
            and not node.pause_reason
            and node.request is None
            and not node_faults(node, self._policy, self._now)
        ]

    def _borrowed(self, left: Sequence[str]) -> Quarantine | None:
        """Return the quarantine of a node without jobs to borrow, if needed and available."""
        has_failed = any(not test.passed for test in self._conclusive)
        is_needed = len(left) == 1 or (has_failed and len(left) < ENOUGH)
        if not is_needed or self._free_slots < 1 or any(map(_is_arriving, self._pool)):
            return None
        if not self._free:
            return None
        # Nodes that have passed a check come first.
        chosen = min(
            self._free, key=lambda one: (one.record.checked_machine != one.machine, one.name)
        )
        fault = Fault(
            family="node",
            condition=Condition.REQUESTED,
            reason=Reason.DEEP_CHECK_PARTNER,
            severity=Severity.FATAL,
            remedy=Remedy.NONE,
            message=f"no job runs on it; test peer of {', '.join(sorted(left))}",
            since=self._now,
            urgency=Urgency.DEFERRED,  # a job that starts on it right now continues
        )
        return Quarantine(node=chosen.name, fault=fault, remedy=Remedy.NONE)
