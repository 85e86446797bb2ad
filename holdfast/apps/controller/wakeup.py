"""Waking the loop, from any thread and from signal handlers."""

import os
import select
from contextlib import suppress


class Wakeup:
    """Like ``threading.Event``, but made for signal handlers.

    Setting it takes no lock, which the thread that the handler interrupts might be holding.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def set(self) -> None:
        """Have the present wait, or else the next one, end at once."""
        with suppress(BlockingIOError):  # it is full of wake-ups already
            os.write(self._writer, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait until ``set`` was called, or for so long. Returns whether it was called."""
        ready, _, _ = select.select([self._reader], [], [], max(seconds, 0))
        if ready:
            os.read(self._reader, 65536)
        return bool(ready)
