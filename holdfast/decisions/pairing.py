"""Which pairs of nodes to test next, and which node or link is bad.

A failed test of a pair shows that a part of it is bad, but not which one, and a bad part need not
fail every test. So nodes are tested in rounds, each node in one pair of a round, and the belief
about every node and link is computed from all results together. A passed test makes the three parts
of its pair, two nodes and their link, less suspicious, by ``DETECTION_RATE`` at most. A failed test
makes all three more suspicious, each the more, the less suspicious the others are. The next round
pairs suspicious nodes with nodes without evidence against them: if the failures follow a node, the
node is bad; if they stay with the pair, the link is.

The model is a noisy-or of independent parts; beliefs are computed by message passing between the
pairs that failed and their parts (J. Pearl, Probabilistic Reasoning in Intelligent Systems, 1988,
chapter 4), which is exact where these pairs form no cycle.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

DETECTION_RATE: Final = 0.5
"""Assumed probability that a bad part makes a test fail. A part that fails more often is found as
well, with fewer tests."""

NODE_IS_BAD: Final = 0.03
"""Prior probability that a node is bad: two of 64."""

LINK_IS_BAD: Final = 0.00001
"""Prior probability that the link between two given nodes is bad. 64 nodes have 2,016 links."""

NOISE: Final = 0.0001
"""Probability that a test of good parts fails."""

BAD_FROM: Final = 0.9
"""Probability from which a part counts as bad."""

GOOD_UP_TO: Final = NODE_IS_BAD / 100
"""Probability up to which a node counts as good: of 100 bad nodes that fail half of their tests,
less than one passes the seven tests that this takes."""

NEAR: Final = 64
"""Number of the least suspicious nodes from which a peer is chosen, so that the pairs of thousands
of nodes are found fast."""

COMMON: Final = 0.5
"""If more than this share of the nodes fail more than half of their tests, something that they
share is bad: the network, a switch, the test itself. Then no node or link is blamed."""

_SWEEPS: Final = 30
_LARGEST: Final = 50.0
"""Log odds beyond which more evidence changes nothing, and ``exp`` could overflow."""

_MANY: Final = 8
"""Number of failures of one pair beyond which more of them change nothing: a bad node that always
fails, but is assumed to fail half of the time, would make its peer look bad as well."""

Pair = tuple[str, str]
"""Two different nodes, ordered by name."""

_Part = str | Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTest:
    """Result of a test of two nodes."""

    nodes: Pair
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Localization:
    """Beliefs after all tests so far."""

    nodes: Mapping[str, float]
    """Probability that each node is bad."""

    links: Mapping[Pair, float]
    """The same for the links that failed a test."""

    has_common_cause: bool
    """Whether so much fails that no single node or link can be the cause."""

    @property
    def bad_nodes(self) -> tuple[str, ...]:
        """Nodes that count as bad."""
        if self.has_common_cause:
            return ()
        return tuple(node for node, belief in self.nodes.items() if belief >= BAD_FROM)

    @property
    def bad_links(self) -> tuple[Pair, ...]:
        """Links that count as bad."""
        if self.has_common_cause:
            return ()
        return tuple(link for link, belief in self.links.items() if belief >= BAD_FROM)

    @property
    def is_settled(self) -> bool:
        """Whether more tests would hardly change anything."""
        doubts = any(GOOD_UP_TO < belief < BAD_FROM for belief in self.nodes.values())
        return not doubts and not any(
            NODE_IS_BAD < belief < BAD_FROM for belief in self.links.values()
        )


def pair_of(one: str, other: str) -> Pair:
    """Return two nodes ordered by name."""
    return (one, other) if one < other else (other, one)


def localize(nodes: Sequence[str], tests: Sequence[PairTest]) -> Localization:
    """Compute from all tests how likely it is that each node and link is bad."""
    beliefs = _Beliefs(tests)
    links = sorted(beliefs.failures)
    return Localization(
        nodes={node: _probability(beliefs.log_odds(node)) for node in nodes},
        links={link: _probability(beliefs.log_odds(link)) for link in links},
        has_common_cause=_has_common_cause(nodes, tests),
    )


def _has_common_cause(nodes: Sequence[str], tests: Iterable[PairTest]) -> bool:
    balance: Counter[str] = Counter()
    for test in tests:
        for node in test.nodes:
            balance[node] += -1 if test.passed else 1
    return sum(balance[node] > 0 for node in nodes) > COMMON * len(nodes)


class _Beliefs:
    """Log odds of parts, and the messages from failed pairs to their parts.

    All failures of one pair are one piece of evidence: they have the same three parts, and counted
    one by one, each would be explained by what the others imply.
    """

    def __init__(self, tests: Iterable[PairTest]) -> None:
        self.failures: Counter[Pair] = Counter()
        """Number of failures of each pair."""

        self._base: defaultdict[_Part, float] = defaultdict(float)
        for test in tests:
            if test.passed:
                for part in _parts(test.nodes):
                    self._base[part] += math.log(1 - DETECTION_RATE)
            else:
                self.failures[test.nodes] += 1
        self._pairs: defaultdict[_Part, list[Pair]] = defaultdict(list)
        for pair in self.failures:
            for part in _parts(pair):
                self._pairs[part].append(pair)
        self._messages = {pair: dict.fromkeys(_parts(pair), 0.0) for pair in self.failures}
        for _ in range(_SWEEPS):
            self._messages = {pair: self._messages_from(pair) for pair in self.failures}

    def log_odds(self, part: _Part, *, without: Pair | None = None) -> float:
        """Return the log odds that a part is bad, without the failures of one pair."""
        prior = LINK_IS_BAD if isinstance(part, tuple) else NODE_IS_BAD
        against = (self._messages[pair][part] for pair in self._pairs[part] if pair != without)
        total = math.log(prior / (1 - prior)) + self._base[part] + sum(against)
        return max(-_LARGEST, min(_LARGEST, total))

    def _messages_from(self, pair: Pair) -> dict[_Part, float]:
        """Return the evidence of a pair's failures for each part, given the other two."""
        beliefs = {part: _probability(self.log_odds(part, without=pair)) for part in _parts(pair)}
        times = min(self.failures[pair], _MANY)
        reported: dict[_Part, float] = {}
        for part, before in self._messages[pair].items():
            others = [belief for other, belief in beliefs.items() if other != part]
            reported[part] = (before + _evidence(others, times)) / 2  # damps oscillation in cycles
        return reported


def _evidence(others: Sequence[float], times: int) -> float:
    """Return the log odds ratio of failing that often for a bad part against a good one."""
    if_bad = if_good = 0.0
    for bad in product((False, True), repeat=len(others)):
        likely = math.prod(
            one if is_bad else 1 - one for one, is_bad in zip(others, bad, strict=True)
        )
        passes = (1 - NOISE) * (1 - DETECTION_RATE) ** sum(bad)
        if_good += likely * (1 - passes) ** times
        if_bad += likely * (1 - passes * (1 - DETECTION_RATE)) ** times
    return math.log(if_bad / if_good)


def _parts(pair: Pair) -> tuple[_Part, ...]:
    return (*pair, pair)


def _probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


def next_pairs(nodes: Sequence[str], tests: Sequence[PairTest]) -> list[Pair]:
    """Return the pairs of the next round; no node is in two. Of an odd number, one rests.

    The most tested node rests. A suspicious link is tested again. Otherwise the most suspicious
    nodes are paired with the least suspicious ones that they have met least often.
    """
    found = localize(nodes, tests)
    met = Counter(test.nodes for test in tests)
    pairs = list(_suspicious_links(found, tests))
    taken = {node for pair in pairs for node in pair}
    waiting = sorted(
        (node for node in nodes if node not in taken), key=lambda node: -found.nodes[node]
    )
    if len(waiting) % 2:
        made = Counter(node for test in tests for node in test.nodes)
        waiting.remove(max(reversed(waiting), key=lambda node: made[node]))
    while waiting:
        node = waiting.pop(0)
        partner = min(reversed(waiting[-NEAR:]), key=lambda other: met[pair_of(node, other)])
        waiting.remove(partner)
        pairs.append(pair_of(node, partner))
    return pairs


def _suspicious_links(found: Localization, tests: Sequence[PairTest]) -> Iterator[Pair]:
    """Yield links that best explain their single failure, which may be noise as well.

    A second failure rules out noise. Whether the link or one of its nodes is bad, no third failure
    would show, but tests of the nodes with others do.
    """
    failures = Counter(test.nodes for test in tests if not test.passed)
    taken: set[str] = set()
    for link in sorted(found.links, key=lambda link: -found.links[link]):
        ends = [found.nodes.get(node, 1.0) for node in link]
        if failures[link] == 1 and max(ends) < found.links[link] and taken.isdisjoint(link):
            taken.update(link)
            yield link
