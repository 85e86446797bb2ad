"""Clean termination by a signal."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from holdfast.kit.signals import handling, heeded

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
"""A terminal sends SIGHUP when it is closed or its connection breaks."""


@contextmanager
def ending_by_signal() -> Iterator[None]:
    """Raise ``SystemExit`` on a signal, so that the tool that this process runs is terminated, too.

    Tools run in sessions of their own, so no other process would terminate them. Signals that the
    caller ignores, as ``nohup`` does with SIGHUP, stay ignored.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with handling(heeded(_ENDING), end):
        yield
