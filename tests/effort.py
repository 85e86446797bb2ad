"""How many examples the expensive properties get: all of them, or a tenth in ``make test``."""

import os

QUICK = "HOLDFAST_TESTS_QUICK"


def examples(number: int) -> int:
    """``number`` in ``make test-all``, a tenth of it in ``make test``."""
    return max(number // 10, 1) if os.environ.get(QUICK) == "1" else number
