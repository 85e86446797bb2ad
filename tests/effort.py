"""How much the expensive tests try: everything, or a part in ``make test`` and ``.ci/run``."""

import os
from collections.abc import Iterable
from typing import Final, TypeVar

QUICK: Final = "HOLDFAST_TESTS_QUICK"
_SHARE: Final = 10

T = TypeVar("T")


def is_quick() -> bool:
    """Whether this is ``make test`` or ``.ci/run``, except once a night."""
    return os.environ.get(QUICK) == "1"


def examples(number: int) -> int:
    """``number`` in ``make test-all``, a tenth of it if the run is quick."""
    return max(number // _SHARE, 1) if is_quick() else number


def positions(last: int) -> range:
    """From 1 to ``last``; if the run is quick, each tenth of them."""
    return range(1, last + 1, _SHARE if is_quick() else 1)


def variants(every: Iterable[T], *, each: int = 2) -> list[T]:
    """All variants of a slow test; if the run is quick, every ``each``-th one from the first on."""
    return [*every][:: each if is_quick() else 1]
