"""Being ended from outside without leaving anything behind."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
"""SIGHUP is what a terminal leaves when it is closed, or its connection breaks."""


@contextmanager
def ending_by_signal() -> Iterator[None]:
    """A signal ends this process the way an error does: with it, the tool that it runs.

    Tools have sessions of their own, so nobody else would end them. What the caller had ignored, as
    ``nohup`` does with SIGHUP, stays ignored.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
