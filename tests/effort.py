"""How much the expensive tests try: everything, or a part in ``make test`` and ``.ci/run``."""

import os
from collections.abc import Iterable
from typing import Final, TypeVar

QUICK: Final = "HOLDFAST_TESTS_QUICK"
LEAST: Final = "2"
_SHARES: Final = {"1": 10, LEAST: 40}
"""Of how many examples one is tried, by the value of ``HOLDFAST_TESTS_QUICK``."""

T = TypeVar("T")


def is_quick() -> bool:
    """Whether this is ``make test`` or ``.ci/run``, except once a night."""
    return os.environ.get(QUICK) in _SHARES


def examples(number: int) -> int:
    """``number``; in ``.ci/run`` a tenth of it, in ``make test`` a fortieth."""
    return max(number // _step(), 1)


def positions(last: int) -> range:
    """From 1 to ``last``; if the run is quick, each tenth or fortieth of them."""
    return range(1, last + 1, _step())


def variants(every: Iterable[T], *, each: int = 2) -> list[T]:
    """All variants of a slow test; if the run is quick, every ``each``-th one from the first on."""
    return [*every][:: each if is_quick() else 1]


def some(every: Iterable[T], *, each: int = 3) -> list[T]:
    """All variants of a test that takes a while; in ``make test`` every ``each``-th one."""
    return [*every][:: each if os.environ.get(QUICK) == LEAST else 1]


def _step() -> int:
    return _SHARES.get(os.environ.get(QUICK, ""), 1)
