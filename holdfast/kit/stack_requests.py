"""Python stacks of a process by faulthandler, when another process requests them.

For where nothing may read the memory of the process, as py-spy does. The process takes part: it
lets faulthandler write the stacks of all threads to a file in memory when it gets a signal. Who
finds that file among its open ones may send the signal.
"""

import faulthandler
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Final

NAME: Final = "holdfast-stacks"
"""Name of the file in memory."""

_OFFSET: Final = 11
"""Place of the signal among the real-time signals; libraries and systemd use the first ones."""


def request_signal() -> int:
    """Return the number of the signal that requests stacks."""
    return signal.SIGRTMIN + _OFFSET


@cache
def answer_requests() -> bool:
    """Let this process write its stacks on request; return whether the system allows it.

    A signal that the program handles itself stays as it is.
    """
    with suppress(AttributeError, OSError, RuntimeError, ValueError):
        if signal.getsignal(request_signal()) is signal.SIG_DFL:
            file = os.memfd_create(NAME)
            faulthandler.register(request_signal(), file, all_threads=True)
            return True
    return False


def stacks_file(pid: int) -> str | None:
    """Return the path to which a process writes its stacks; None if it takes no requests."""
    with suppress(OSError, ValueError):
        if _catches(pid, request_signal()):
            return next(_files(pid), None)
    return None


def _files(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        with suppress(OSError):
            if os.readlink(f"{folder}/{name}").startswith(f"/memfd:{NAME} "):
                yield f"{folder}/{name}"


def _catches(pid: int, number: int) -> bool:
    """Return whether a process handles a signal, which would end it otherwise."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        masks = [line.split()[1] for line in file if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)
