"""Signal handlers for the duration of a block."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object]


def heeded(numbers: Iterable[int]) -> list[int]:
    """Return the signals that the caller does not ignore; ``nohup`` ignores SIGHUP."""
    return [one for one in numbers if signal.getsignal(one) is not signal.SIG_IGN]


@contextmanager
def handling(numbers: Iterable[int], handler: Handler) -> Iterator[None]:
    """Handle signals with ``handler``; the earlier handlers are restored at the end."""
    earlier = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, one in earlier.items():
            signal.signal(number, one)


@contextmanager
def received(numbers: Iterable[int], handler: Handler = lambda *_: None) -> Iterator[int]:
    """Handle signals; yields a descriptor from which the numbers of those received can be read."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    woken_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        with handling(numbers, handler):
            yield reader
    finally:
        signal.set_wakeup_fd(woken_before)
        os.close(reader)
        os.close(writer)
