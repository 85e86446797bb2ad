"""Work that is done again and again, and that may fail."""

import math
import random
import time
from collections.abc import Callable
from typing import Final

from holdfast.adapters.kubernetes.client.errors import ApiError
from holdfast.model.errors import BackendError

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 15.0
"""After a failure; what waits at the end of an outage is sent within this time."""

Log = Callable[[str], None]


class PeriodicTask:
    """One kind of work; times are seconds of ``clock``.

    After a failure it pauses, each time twice as long, and nothing hurries it: the first try
    after an outage is soon enough, and news must not become a storm of calls.
    """

    def __init__(
        self,
        name: str,
        act: Callable[[], None],
        *,
        every_s: float,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Plan nothing yet.

        Args:
            name: the work, in words that go after ``cannot``.
            act: does it; a ``BackendError`` is a failure.
            every_s: between two times; infinity where each is asked for.
            log: takes messages for a person.
            clock: only goes forward.

        """
        self._name = name
        self._act = act
        self._every_s = every_s
        self._log = log
        self._clock = clock
        self._asked_at = self._next_at = math.inf
        self._retry_at = math.inf
        self._failures = 0
        self._last_error = ""

    @property
    def due_at(self) -> float:
        """When to do it next; infinity if nothing is planned."""
        return self._retry_at if self._failures else min(self._asked_at, self._next_at)

    def requeue_now(self, at: float) -> None:
        """Do it at ``at`` at the latest, unless it fails at present."""
        self._asked_at = min(self._asked_at, at)

    def run(self) -> None:
        """Do it. If it cannot be done, a person is told, once."""
        self._asked_at = math.inf  # what is asked for from here on is asked of the next time
        try:
            self._act()
        except BackendError as error:
            self._failures += 1
            self._retry_at = self._clock() + self._pause_s(error)
            if self._last_error != str(error):
                self._last_error = str(error)
                self._log(f"cannot {self._name}: {error}; trying again")
            return
        if self._failures:
            self._log(f"can {self._name} again")
        self._failures = 0
        self._last_error = ""
        self._next_at = self._clock() + self._every_s

    def _pause_s(self, error: BackendError) -> float:
        wanted = error.after if isinstance(error, ApiError) else None
        doubled = FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10)
        pause = min(doubled, LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        return pause if wanted is None else max(pause, wanted.total_seconds())
