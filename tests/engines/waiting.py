"""Waiting until something holds."""

import time
from collections.abc import Callable

TIMEOUT_S = 180
POLL_S = 0.02
LONGEST_POLL_S = 0.1
"""What takes long is looked at less often: each look costs the API server time, too."""

PAUSE = 3
"""Times as long as a look took: that what is waited for gets most of a busy machine."""


class Polling:
    """Polls for a condition, with pauses."""

    def __init__(self) -> None:
        self._began = self._polled_at = time.monotonic()
        self._pause_s = POLL_S

    def pause(self) -> float:
        """Pause; returns when the last poll began, in seconds since the first."""
        waited_s = self._polled_at - self._began
        time.sleep(max(self._pause_s, PAUSE * (time.monotonic() - self._polled_at)))
        self._pause_s = min(1.2 * self._pause_s, LONGEST_POLL_S)
        self._polled_at = time.monotonic()
        return waited_s


def until(condition: Callable[[], object]) -> object:
    """Wait until it holds, and return what it gave; a test fails after three minutes."""
    polling = Polling()
    while not (found := condition()):
        assert polling.pause() < TIMEOUT_S, "it never came true"
    return found
