"""Tests of pairs of nodes in rounds, until it is known which node or link is bad."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from holdfast.adapters.host.commands import run_command
from holdfast.decisions.pairing import Localization, Pair, PairTest, localize, next_pairs
from holdfast.model.errors import BackendError

Ask = Callable[[Pair], bool]
"""Tests a pair; whether it passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsResult:
    """What became of all rounds."""

    rounds: int
    tests: tuple[PairTest, ...]
    found: Localization


def run_rounds(
    nodes: Sequence[str],
    ask: Ask,
    *,
    rounds: int,
    at_once: int,
    told: Callable[[int, Sequence[PairTest]], None],
) -> PairsResult:
    """Test pairs until more tests would hardly change anything, for ``rounds`` at most.

    Args:
        nodes: two or more, each once.
        ask: tests a pair; called from several threads.
        rounds: the most of them.
        at_once: how many pairs are tested at the same time; those of one round share no node.
        told: is given the number of a round, from 1, and its tests.

    """
    tests: list[PairTest] = []
    number = 0
    with ThreadPoolExecutor(at_once) as threads:
        while number < rounds and not localize(nodes, tests).is_settled:
            number += 1
            pairs = next_pairs(nodes, tests)
            answers = list(threads.map(ask, pairs))
            made = [
                PairTest(nodes=pair, passed=passed)
                for pair, passed in zip(pairs, answers, strict=True)
            ]
            told(number, made)
            tests += made
    return PairsResult(rounds=number, tests=tuple(tests), found=localize(nodes, tests))


def by_command(argv: Sequence[str], timeout: timedelta) -> Ask:
    """Test a pair by a command that is given both names as its last arguments.

    The pair passed if it ends with 0. One that does not end in time failed: that is how bad links
    make collectives behave.
    """
    return partial(_ask, tuple(argv), timeout)


def _ask(argv: Sequence[str], timeout: timedelta, pair: Pair) -> bool:
    try:
        return run_command([*argv, *pair], timeout=timeout).status == 0
    except BackendError:
        return False
