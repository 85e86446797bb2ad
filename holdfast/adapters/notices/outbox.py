"""Bounded queue in front of a receiver that may be slow or unavailable."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, Generic, TypeVar

from holdfast.kit.backoff import Backoff

T = TypeVar("T")

CAPACITY: Final = 10_000
"""Maximum queue length; the oldest notices are dropped beyond it. An event is about 1 KiB."""

_BACKOFF: Final = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=1))
_FLUSH_S: Final = 3.0
"""How long ``stop`` waits for the queue to drain."""


class TryAgain(Exception):
    """Delivery failed and can be retried."""

    def __init__(self, why: str, after_s: float = 0.0, left: Sequence[int] | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s
        self.left = left
        """Indexes of the undelivered items; None for all."""


class Refused(Exception):
    """The receiver rejected the item permanently."""


def singly(deliver: Callable[[T], None]) -> Callable[[Sequence[T]], None]:
    """Adapt a function that delivers one item to the interface of ``Outbox``."""

    def delivered(items: Sequence[T]) -> None:
        for item in items:
            deliver(item)

    return delivered


class Outbox(Generic[T]):
    """Delivers items in order, in its own thread, from ``start`` to ``stop``."""

    def __init__(
        self,
        name: str,
        deliver: Callable[[Sequence[T]], None],
        failed: Callable[[str, str], None],
        *,
        largest: int = 1,
    ) -> None:
        """Create a stopped outbox.

        Args:
            name: name of the receiver, for messages.
            deliver: raises ``TryAgain`` or ``Refused`` if it cannot.
            failed: called from the thread with what failed and why.
            largest: maximum batch size.

        """
        self._name = name
        self._deliver = deliver
        self._largest = largest
        self._failed = failed
        self._waiting: deque[T] = deque()
        self._dropped = 0
        self._changed = threading.Condition()
        self._give_up_at: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"notices to {name}", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Drain the queue for at most ``_FLUSH_S``, report what is left, and end the thread."""
        with self._changed:
            self._give_up_at = time.monotonic() + _FLUSH_S
            self._changed.notify()
        self._thread.join(_FLUSH_S * 2)
        with self._changed:
            left = len(self._waiting) + self._dropped
        if left:
            self._failed(f"notifying {self._name}", f"{left} notices were not delivered")

    def put(self, item: T) -> None:
        """Enqueue an item; returns at once."""
        with self._changed:
            self._waiting.append(item)
            if len(self._waiting) > CAPACITY:
                self._waiting.popleft()
                self._dropped += 1
            self._changed.notify()

    def _run(self) -> None:
        failures = 0
        while items := self._next():
            try:
                self._deliver(items)
            except TryAgain as error:
                self._failed(f"notifying {self._name}", str(error))
                left = range(len(items)) if error.left is None else error.left
                self._put_back([items[number] for number in left])
                failures += 1
                requested_s = min(error.after_s, _BACKOFF.longest.total_seconds())
                if not self._wait(max(_BACKOFF.delay(failures).total_seconds(), requested_s)):
                    return
            except Refused as error:
                self._failed(f"notifying {self._name}", f"{error}; this notice is dropped")
            else:
                failures = 0
                self._report_dropped()

    def _next(self) -> list[T]:
        """The next batch; blocks until there is one. Empty at the end."""
        with self._changed:
            while not self._waiting:
                if self._give_up_at is not None:
                    return []
                self._changed.wait()
            is_late = self._give_up_at is not None and time.monotonic() > self._give_up_at
            count = 0 if is_late else min(self._largest, len(self._waiting))
            return [self._waiting.popleft() for _ in range(count)]

    def _put_back(self, items: Sequence[T]) -> None:
        with self._changed:
            room = max(0, CAPACITY - len(self._waiting))
            newest = items[max(0, len(items) - room) :]
            self._waiting.extendleft(reversed(newest))
            self._dropped += len(items) - len(newest)

    def _wait(self, seconds: float) -> bool:
        """Wait before the next attempt; False if there is none because the queue was stopped."""
        until = time.monotonic() + seconds
        with self._changed:
            while (left := until - time.monotonic()) > 0:
                if self._give_up_at is not None:
                    return False
                self._changed.wait(left)
        return True

    def _report_dropped(self) -> None:
        with self._changed:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            self._failed(f"notifying {self._name}", f"{dropped} older notices were dropped")
