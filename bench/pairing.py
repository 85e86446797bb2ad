"""Pairing: which bad nodes are found when they show it half of the time, in simulated tests.

64 nodes, one to four of them bad, and each bad node makes half of its tests fail. Beside it
stands the two-round pairing of DLRover's network check, in the same simulation: neighbors first,
then every node of a failed pair with one of a passed pair; who fails twice is bad.
"""

import random
from collections.abc import Callable, Sequence

from bench.figure import Figure
from holdfast.decisions.pairing import Pair, PairTest, localize, next_pairs, pair_of

NODES = [f"node-{number:02}" for number in range(64)]
ROUNDS = 12
DETECTION_RATE = 0.5
TRIALS = 250
QUICK_TRIALS = 40

Ask = Callable[[Pair], bool]
Method = Callable[[Ask], set[str]]


def run(*, quick: bool = False) -> list[Figure]:
    """Each number of bad nodes as often; misses and wrong accusations, in per cent."""
    trials = QUICK_TRIALS if quick else TRIALS
    figures = []
    for bad in (1, 2, 3, 4):
        missed, wrong = _misses(_adaptive, bad, trials)
        figures += [
            Figure(
                name=f"{bad} bad of 64 not found in {ROUNDS} rounds", value=missed, unit="%", goal=1
            ),
            Figure(name=f"{bad} bad of 64, trials with a wrong accusation",
                   value=wrong, unit="%", goal=1),
        ]  # fmt: skip
    missed, _ = _misses(_two_rounds, 1, trials)
    return [
        *figures,
        Figure(name="two-round pairing (peer), 1 bad not found", value=missed, unit="%", goal=100),
    ]


def _misses(method: Method, bad: int, trials: int) -> tuple[float, float]:
    missed = wrong = 0
    for seed in range(trials):
        chance = random.Random(f"{bad}/{seed}")
        culprits = set(chance.sample(NODES, bad))
        accused = method(lambda pair, c=culprits, r=chance: _passes(pair, c, r))
        missed += len(culprits - accused)
        wrong += bool(accused - culprits)
    return 100 * missed / (bad * trials), 100 * wrong / trials


def _passes(pair: Pair, culprits: set[str], chance: random.Random) -> bool:
    return all(node not in culprits or chance.random() >= DETECTION_RATE for node in pair)


def _adaptive(ask: Ask) -> set[str]:
    """As the controller does it: no more rounds than it takes."""
    tests: list[PairTest] = []
    for _ in range(ROUNDS):
        tests += [PairTest(nodes=pair, passed=ask(pair)) for pair in next_pairs(NODES, tests)]
        if localize(NODES, tests).is_settled:
            break
    return set(localize(NODES, tests).bad_nodes)


def _two_rounds(ask: Ask) -> set[str]:
    first = [pair_of(*NODES[n : n + 2]) for n in range(0, len(NODES), 2)]
    passed = {pair: ask(pair) for pair in first}
    suspects = [node for pair in first if not passed[pair] for node in pair]
    good = [node for pair in first if passed[pair] for node in pair]
    second = [pair_of(*pair) for pair in _each_with_another(suspects, good)]
    failed_again = {node for pair in second if not ask(pair) for node in pair}
    return failed_again & set(suspects)


def _each_with_another(suspects: Sequence[str], good: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(suspects, good, strict=False))
