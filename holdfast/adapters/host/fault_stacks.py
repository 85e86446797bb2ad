"""Reads the Python stacks of a process that takes requests for them: see ``stack_requests``."""

import os
import re
import time
from typing import Final

from holdfast.decisions.rank_snapshots import Frame, Helper
from holdfast.kit.stack_requests import request_signal, stacks_file

_WAIT_S: Final = 1.0
"""Maximum time until the stacks are written; a stopped process writes none."""

_QUIET_S: Final = 0.1
"""Time without further output after which the stacks are complete."""

_POLL_S: Final = 0.01
_OUTPUT_LIMIT: Final = 1 << 20
_THREADS_LIMIT: Final = 64

_THREAD: Final = re.compile(
    r"(?:Current thread|Thread) 0x[0-9a-f]{1,16}(?: \[([^\]]{0,100})\])?"
    r" \(most recent call first\):"
)
_FRAME: Final = re.compile(r'  File "(.{0,1000})", line (\d{1,9}) in (.{1,200})')


def requested_threads(pid: int, deadline: float) -> tuple[Helper, ...]:
    """Return the threads of a process, the main thread first; empty if it writes no stacks.

    Args:
        pid: a Python process.
        deadline: monotonic time at which the request is given up.

    """
    path = stacks_file(pid)
    if path is None:
        return ()
    try:
        with open(path, "rb", buffering=0) as file:
            begin = file.seek(0, os.SEEK_END)
            os.kill(pid, request_signal())
            size, changed_at = begin, time.monotonic()
            until = min(deadline, changed_at + _WAIT_S)
            while (now := time.monotonic()) < until:
                if size > begin and now - changed_at >= _QUIET_S:
                    break
                time.sleep(_POLL_S)
                if (grown := file.seek(0, os.SEEK_END)) != size:
                    size, changed_at = grown, time.monotonic()
            file.seek(begin)
            return parsed(file.read(_OUTPUT_LIMIT).decode("utf-8", "replace"))
    except OSError:
        return ()


def parsed(text: str) -> tuple[Helper, ...]:
    """Return the threads in what faulthandler has written, the main thread first.

    faulthandler begins with the newest thread, so that the main thread is the last one. It does
    not write the numbers of threads in the kernel.
    """
    threads: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if (began := _THREAD.fullmatch(line)) is not None:
            threads.append((began[1] or "", []))
        elif threads and (found := _FRAME.fullmatch(line)) is not None:
            frame = Frame(function=found[3], file=found[1][-500:], line=int(found[2]))
            threads[-1][1].append(frame)
    found_threads = [
        Helper(id=0, name=name, frames=tuple(frames)) for name, frames in reversed(threads)
    ]
    return tuple(found_threads[:_THREADS_LIMIT])
