"""Waiting until something holds."""

import time
from collections.abc import Callable

TIMEOUT_S = 180
POLL_S = 0.02
LONGEST_POLL_S = 0.1
"""What takes long is looked at less often: each look costs the API server time, too."""

PAUSE = 3
"""Times as long as a look took: that what is waited for gets most of a busy machine."""


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds; a test fails if it does not within three minutes."""
    began, pause_s = time.monotonic(), POLL_S
    deadline = began + TIMEOUT_S
    while not condition():
        looked_at = time.monotonic()
        assert looked_at < deadline, "it never came true"
        time.sleep(max(pause_s, PAUSE * (looked_at - began)))
        pause_s = min(1.2 * pause_s, LONGEST_POLL_S)
        began = time.monotonic()
