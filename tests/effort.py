"""How much the expensive tests try: everything, or a tenth of it in ``make test``."""

import os
from typing import Final

QUICK: Final = "HOLDFAST_TESTS_QUICK"
_SHARE: Final = 10


def is_quick() -> bool:
    """Whether this is ``make test``."""
    return os.environ.get(QUICK) == "1"


def examples(number: int) -> int:
    """``number`` in ``make test-all``, a tenth of it in ``make test``."""
    return max(number // _SHARE, 1) if is_quick() else number


def positions(last: int) -> range:
    """From 1 to ``last``; in ``make test`` each tenth of them."""
    return range(1, last + 1, _SHARE if is_quick() else 1)
