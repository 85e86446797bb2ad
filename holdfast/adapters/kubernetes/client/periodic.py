"""Periodic tasks with retries."""

import math
import random
import time
from collections.abc import Callable
from typing import Final

from holdfast.adapters.kubernetes.client.errors import ApiError
from holdfast.model.errors import BackendError

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 15.0
"""Longest backoff after a failure; after an outage, pending work is sent within this time."""

Log = Callable[[str], None]


class PeriodicTask:
    """One periodic task with exponential backoff; times are seconds of ``clock``.

    During a backoff, ``requeue_now`` has no effect: the next retry is soon enough, and changes must
    not cause a storm of calls.
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
        """Create the task; nothing is scheduled yet.

        Args:
            name: what it does: a verb and its object, used after ``cannot`` in messages.
            act: does the work; a ``BackendError`` is a failure.
            every_s: interval; infinity for a task that runs only on ``requeue_now``.
            log: takes log messages.
            clock: monotonic clock.

        """
        self._name = name
        self._act = act
        self._every_s = every_s
        self._log = log
        self._clock = clock
        self._requested_at = self._next_at = math.inf
        self._retry_at = math.inf
        self._failures = 0
        self._last_error = ""

    @property
    def due_at(self) -> float:
        """When to run next; infinity if nothing is scheduled."""
        return self._retry_at if self._failures else min(self._requested_at, self._next_at)

    def requeue_now(self, at: float) -> None:
        """Run at ``at`` at the latest, unless the task is backing off."""
        self._requested_at = min(self._requested_at, at)

    def run(self) -> None:
        """Run the task. An error is logged once, until it changes or the task succeeds."""
        self._requested_at = math.inf  # requests from here on are for the next run
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
