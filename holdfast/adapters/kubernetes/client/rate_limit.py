"""Client-side rate limit of requests to the API server."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta


class RateLimit:
    """Token bucket; threads are served in order of arrival.

    Every request takes a token. The bucket holds ``burst`` of them and gets ``per_second`` new
    ones a second.
    """

    def __init__(
        self,
        *,
        per_second: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if per_second <= 0 or burst < 1:
            raise ValueError(f"rate limit must be above 0, got {per_second:g} a second, {burst}")
        self._interval = 1 / per_second
        self._slack = (burst - 1) * self._interval
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._next = clock() - self._slack
        self._waited = 0.0

    def acquire(self) -> timedelta:
        """Wait for a token, and return the time waited."""
        with self._lock:
            now = self._clock()
            slot = max(self._next, now - self._slack)
            self._next = slot + self._interval
            wait = max(slot - now, 0.0)
            self._waited += wait
        if wait:
            self._sleep(wait)
        return timedelta(seconds=wait)

    @property
    def waited(self) -> timedelta:
        """Total time that all requests have waited so far."""
        return timedelta(seconds=self._waited)
