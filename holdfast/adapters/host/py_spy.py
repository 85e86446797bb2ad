"""Reads the Python stacks of a process with py-spy (0.4, extra ``stacks``), without pausing it.

py-spy needs to be root, or the same user where ``kernel.yama.ptrace_scope`` is 0.
"""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.decisions.rank_snapshots import Frame, Helper

_TIMEOUT_S: Final = 5.0
"""Timeout of one dump, if that much time remains; 0.1 s is usual."""

_SHARE: Final = 0.7
"""Share of the remaining time that one dump may take, if that is more than ``_TIMEOUT_S``.
Processes below the rank are read after it."""

_THREADS_LIMIT: Final = 64
_FRAMES_LIMIT: Final = 100
_OUTPUT_LIMIT: Final = 1 << 22

NO_PY_SPY: Final = (
    "no stack: py-spy is not installed; install it with: pip install 'holdfast[stacks]'"
)
"""Note of a rank whose stack nothing can read."""


def py_spy() -> str | None:
    """Return the path of py-spy; None if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadDump:
    """The threads of a process, or why there are none."""

    threads: tuple[Helper, ...] = ()
    """The main thread first."""

    note: str = ""
    """Why there are none; empty if there are some."""

    is_late: bool = False
    """Whether there was too little time for them."""


def dumped_threads(pid: int, deadline: float) -> ThreadDump:
    """Return the threads of a process, or why there are none.

    Args:
        pid: a Python process.
        deadline: monotonic time at which py-spy is ended.

    """
    program = py_spy()
    if program is None:
        return ThreadDump(note=NO_PY_SPY)
    left_s = deadline - time.monotonic()
    timeout_s = max(min(_TIMEOUT_S, left_s), _SHARE * left_s)
    if left_s <= 0:
        note = "no stack: the time limit of the inspection was reached"
        return ThreadDump(note=note, is_late=True)
    command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        threads = json.loads(done.stdout[:_OUTPUT_LIMIT]) if done.returncode == 0 else None
    except subprocess.TimeoutExpired:
        note = f"no stack: py-spy did not respond within {timeout_s:.1f} s"
        return ThreadDump(note=note, is_late=True)
    except (OSError, ValueError) as error:
        return ThreadDump(note=f"no stack: {error}")
    if threads is None:
        printed = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = printed[-1][:200] if printed else done.returncode
        return ThreadDump(note=f"no stack: py-spy: {why}")
    found = [_thread(one) for one in threads]
    if not found:
        return ThreadDump(note="no stack: no thread runs Python code")
    main = next((one for one in found if one.name == "MainThread" or one.id == pid), found[0])
    rest = [one for one in found if one is not main]
    return ThreadDump(threads=(main, *rest[: _THREADS_LIMIT - 1]))


def _thread(printed: Any) -> Helper:
    return Helper(
        id=int(printed.get("os_thread_id") or 0),
        name=str(printed.get("thread_name") or "")[:100],
        frames=tuple(
            Frame(
                function=str(one.get("name", ""))[:200],
                file=str(one.get("filename", ""))[:500],
                line=int(one.get("line") or 0),
            )
            for one in printed.get("frames", ())[:_FRAMES_LIMIT]
        ),
    )
