"""Tests pairs of nodes in rounds, until the bad node or link is known."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from threading import Event
from typing import Final

from holdfast.adapters.host.commands import NotStarted, run_command
from holdfast.adapters.host.pairs.contract import FAMILY
from holdfast.decisions.pairing import (
    GOOD_UP_TO,
    Localization,
    Pair,
    PairTest,
    localize,
    next_pairs,
)
from holdfast.model.deep_checks import Outcome
from holdfast.model.errors import BackendError
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason
from holdfast.model.node_checks import Level, NodeCheck, PartResult

PART: Final = "pairs"
"""Name of the part that stands for all pair tests in a node's check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResponse:
    """Result of a test of a pair."""

    passed: bool | None
    """None without a result: a tool is missing, or a node was busy."""

    why: str = ""
    """Why it did not pass, if known."""

    parts: tuple[PartResult, ...] = ()


Measure = Callable[[Pair], PairResponse]
"""Tests a pair."""

_LONGEST_WHY: Final = 300
"""Maximum characters of a reason."""

Answers = Sequence[tuple[Pair, PairResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsResult:
    """Results of all rounds."""

    rounds: int
    answers: tuple[tuple[Pair, PairResponse], ...]
    found: Localization

    @property
    def tests(self) -> tuple[PairTest, ...]:
        """Return the tests that have a result."""
        return _tests(self.answers)


def run_rounds(
    nodes: Sequence[str],
    measure: Measure,
    *,
    rounds: int,
    at_once: int,
    reported: Callable[[int, Answers], None],
    over: Event,
) -> PairsResult:
    """Test pairs until more tests would hardly change the result, for at most ``rounds``.

    Args:
        nodes: two or more, each once.
        measure: tests a pair; called from several threads.
        rounds: maximum number of rounds.
        at_once: number of pairs to test in parallel; pairs of one round share no node.
        reported: called with the number of a round, from 1, and its results.
        over: set at the end, however it ends; running tests should then stop.

    Raises:
        BackendError: no test of a round had a result.

    """
    answers: list[tuple[Pair, PairResponse]] = []
    number = 0
    with ThreadPoolExecutor(at_once) as threads, _ending(over):
        while number < rounds and not localize(nodes, _tests(answers)).is_settled:
            number += 1
            pairs = next_pairs(nodes, _tests(answers))
            made = list(zip(pairs, threads.map(measure, pairs), strict=True))
            reported(number, made)
            if not _tests(made):
                pair, answer = made[0]
                raise BackendError(f"no pair could be tested: {' and '.join(pair)}: {answer.why}")
            answers += made
    return PairsResult(
        rounds=number, answers=tuple(answers), found=localize(nodes, _tests(answers))
    )


@contextmanager
def _ending(over: Event) -> Iterator[None]:
    """Set ``over`` at the end, and do not wait for running tests."""
    try:
        yield
    finally:
        over.set()


def by_command(argv: Sequence[str], timeout: timedelta, is_over: Callable[[], bool]) -> Measure:
    """Return a test of pairs by a command, which gets both names as its last arguments.

    The pair passes if the command exits with 0. A command that times out fails: bad links make
    collectives hang in this way.
    """
    return partial(_query, tuple(argv), timeout, is_over)


def node_checks(
    result: PairsResult,
    *,
    instance_type: str,
    started_at: datetime,
    now: datetime,
    condition: Condition = Condition.NETWORK,
) -> tuple[NodeCheck, ...]:
    """Return the check of each node, from all tests together; ``condition`` is of a bad node."""
    return tuple(
        NodeCheck(
            node=node,
            instance_type=instance_type,
            level=Level.QUICK,
            started_at=started_at,
            parts=(_part(node, result, condition, now),),
        )
        for node in result.found.nodes
    )


def _part(node: str, result: PairsResult, condition: Condition, now: datetime) -> PartResult:
    own = [answer for pair, answer in result.answers if node in pair]
    made = [answer for answer in own if answer.passed is not None]
    failed = sum(not answer.passed for answer in made)
    probability = result.found.nodes[node]
    tests = f"{failed} of {len(made)} tests with other nodes failed"
    detail = f"{tests}; probability of a bad node {probability:.1%}"
    is_bad = node in result.found.bad_nodes
    outcome = Outcome.FAILED if is_bad else Outcome.UNKNOWN
    if probability <= GOOD_UP_TO and not result.found.has_common_cause:
        outcome = Outcome.PASSED
    return PartResult(
        name=PART,
        outcome=outcome,
        detail=detail,
        measured=_medians(own),
        findings=(_finding(node, detail, condition, now),) if is_bad else (),
    )


def _medians(answers: Sequence[PairResponse]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for answer in answers:
        for part in answer.parts:
            for name, value in part.measured.items():
                values.setdefault(name, []).append(value)
    return {name: statistics.median(found) for name, found in values.items()}


def _finding(node: str, detail: str, condition: Condition, now: datetime) -> Finding:
    """Return the finding on a node; HyperPod replaces nodes that fail its NCCL test.

    HyperPod's message is "Encountered FaultyInstance".
    """
    return Finding(
        family=FAMILY,
        condition=condition,
        reason=Reason.PAIR_FAILED,
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        message=f"{node}: {detail}",
        observed_at=now,
    )


def _tests(answers: Answers) -> tuple[PairTest, ...]:
    return tuple(
        PairTest(nodes=pair, passed=answer.passed)
        for pair, answer in answers
        if answer.passed is not None
    )


def _query(
    argv: Sequence[str], timeout: timedelta, is_over: Callable[[], bool], pair: Pair
) -> PairResponse:
    try:
        result = run_command([*argv, *pair], timeout=timeout, is_over=is_over)
    except NotStarted as error:
        return PairResponse(passed=None, why=str(error))
    except BackendError as error:
        return PairResponse(passed=False, why=str(error))
    words = (result.stderr.strip() or result.stdout.strip()).rpartition("\n")[2]
    why = f"it exited with {result.status}{': ' if words else ''}{words}"[:_LONGEST_WHY]
    return PairResponse(passed=result.status == 0, why=why if result.status else "")
