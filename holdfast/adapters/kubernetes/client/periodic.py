"""Periodic tasks with retries."""

import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.errors import ApiError
from holdfast.kit.backoff import Backoff
from holdfast.kit.jitter import JITTER
from holdfast.model.errors import BackendError

BACKOFF: Final = Backoff(first=timedelta(seconds=0.5), longest=timedelta(seconds=15))
"""Delays after failures; after an outage, pending work is sent within the longest."""

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
            self._retry_at = self._clock() + self._delay(error).total_seconds()
            if self._last_error != str(error):
                self._last_error = str(error)
                self._log(f"cannot {self._name}: {error}; retrying")
            return
        if self._failures:
            self._log(f"{self._name}: succeeded again")
        self._failures = 0
        self._last_error = ""
        self._next_at = self._clock() + self._every_s

    def _delay(self, error: BackendError) -> timedelta:
        requested = error.after if isinstance(error, ApiError) else None
        delay = BACKOFF.delay(self._failures, JITTER.random())
        return delay if requested is None else max(delay, requested)
