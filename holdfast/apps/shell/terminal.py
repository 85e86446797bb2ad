"""Terminal of this process, connected to a remote command."""

import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FrameType
from typing import Final

from holdfast.adapters.kubernetes.client.pod_terminal import Terminal

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def has_terminal() -> bool:
    """Whether standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def raw_terminal() -> Iterator[Terminal | None]:
    """Yield the terminal in raw mode, which forwards every key, Ctrl-C too; None without one."""
    if not has_terminal():
        yield None
        return
    typed = sys.stdin.fileno()
    before = termios.tcgetattr(typed)
    resized, notice = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    previous = signal.signal(signal.SIGWINCH, lambda *_: _note(notice))
    try:
        tty.setraw(typed)
        yield Terminal(typed=typed, resized=resized, size=lambda: os.get_terminal_size(typed))
    finally:
        signal.signal(signal.SIGWINCH, previous)
        with contextlib.suppress(termios.error):  # the terminal may be closed
            termios.tcsetattr(typed, termios.TCSADRAIN, before)
        os.close(resized)
        os.close(notice)


@contextlib.contextmanager
def unwinding_on_signals() -> Iterator[Callable[[], None]]:
    """Unwind the block before a signal ends this process.

    Yields:
        Callback that ignores further signals; call it before cleanup.

    Raises:
        SystemExit: a signal was received; the code is 128 plus its number, as in shells.

    """
    signals = (*_ENDING, signal.SIGINT)
    previous = {one: signal.getsignal(one) for one in signals}
    for one in _ENDING:
        signal.signal(one, _end)
    try:
        yield partial(_ignore, signals)
    finally:
        for one, handler in previous.items():
            signal.signal(one, handler)


def _ignore(signals: Iterable[signal.Signals]) -> None:
    for one in signals:
        signal.signal(one, signal.SIG_IGN)


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _note(notice: int) -> None:
    with contextlib.suppress(BlockingIOError):  # the pipe is full of notices already
        os.write(notice, b"!")
