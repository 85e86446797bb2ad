"""Output of a long-running command that is restarted when it exits."""

import contextlib
import fcntl
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from holdfast.kit.backoff import Backoff

BLOCK: Final = 256 * 1024
"""Maximum bytes per read."""

LONGEST: Final = 1024 * 1024
"""Maximum line length in bytes; longer lines are dropped."""

BACKOFF: Final = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=1))
"""Delays before a restart."""

PROVEN: Final = timedelta(seconds=5)
"""A command that has run this long, or has written a line, has started successfully."""

_PIPE_BYTES: Final = 1024 * 1024  # maximum for unprivileged users (pipe(7), pipe-max-size)
_ERROR_OUTPUT_BYTES: Final = 1024
_END_S: Final = 1.0


class CommandStream:
    """Lines of a command. A full pipe blocks the command until its output is read."""

    def __init__(
        self, argv: Callable[[], Sequence[str]], *, silence: timedelta | None = None
    ) -> None:
        """Run the command that ``argv`` returns at each start; ``read`` starts it.

        Args:
            argv: returns the argument list.
            silence: a command without output for this long is considered hung and restarted; None
               for a command that may be silent.

        """
        self.error = ""
        """Why no output is available; empty while the command runs."""

        self._argv = argv
        self._silence = silence
        self._process: subprocess.Popen[bytes] | None = None
        self._name = ""
        self._failures = 0
        self._start_at = 0.0
        self._output_at = 0.0
        self._rest = b""
        self._is_cut = False
        self._error_output = b""
        self._lock = threading.Lock()  # one thread may close it while another reads

    def fileno(self) -> int | None:
        """Return the descriptor of the output; None while the command does not run."""
        return None if self._process is None else _descriptor(self._process.stdout)

    def read(self) -> list[bytes]:
        """Return the lines since the last call, a bounded number. Never blocks."""
        with self._lock:
            return self._read(time.monotonic())

    def close(self) -> None:
        """Kill the command and all processes in its session; it is not restarted."""
        with self._lock:
            self._start_at = math.inf
            self._end()

    def _read(self, now: float) -> list[bytes]:
        if self._process is None and now >= self._start_at:
            self._start(now)
        process = self._process
        if process is None:
            return []
        has_ended = process.poll() is not None  # checked first: all its output is in the pipe then
        data = _take(process.stdout)
        # Read afterwards, so that what it wrote before it closed its output is included.
        self._error_output = (self._error_output + (_take(process.stderr) or b""))[
            -_ERROR_OUTPUT_BYTES:
        ]
        if data:
            self._output_at = now
        elif data == b"" or has_ended:
            self._fail(f"ended with {_ended(process)}{self._why()}", now)
        elif self._silence is not None and now - self._output_at > self._silence.total_seconds():
            self._fail(f"wrote no output for {self._silence.total_seconds():g} s", now)
        lines = self._lines(data or b"")
        if lines or (self._process and now - self._output_at > PROVEN.total_seconds()):
            self.error, self._failures = "", 0
        return lines

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _ended(process)

    def _start(self, now: float) -> None:
        argv = list(self._argv())
        self._name = os.path.basename(argv[0])
        self._rest, self._is_cut, self._error_output, self._output_at = b"", False, b"", now
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            self._fail(f"cannot be started: {error.strerror}", now)
            return
        for pipe in (process.stdout, process.stderr):
            os.set_blocking(_descriptor(pipe), False)
        with contextlib.suppress(OSError):  # pipes of one user share a quota
            fcntl.fcntl(_descriptor(process.stdout), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._process = process

    def _fail(self, why: str, now: float) -> None:
        self._end()
        self.error = f"{self._name} {why}"
        self._failures += 1
        self._start_at = now + BACKOFF.delay(self._failures).total_seconds()

    def _why(self) -> str:
        lines_written = self._error_output.decode("utf-8", errors="replace").strip().splitlines()
        return f": {lines_written[-1]}" if lines_written else ""

    def _lines(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines and self._is_cut:
            del lines[0]
            self._is_cut = False
        if len(self._rest) > LONGEST:
            self._rest, self._is_cut = b"", True
        return lines


def _descriptor(pipe: object) -> int:
    assert hasattr(pipe, "fileno")  # noqa: S101 - both outputs are pipes
    return int(pipe.fileno())


def _take(pipe: object) -> bytes | None:
    """Return the content of a pipe; empty at its end, None if no data is available yet."""
    try:
        return os.read(_descriptor(pipe), BLOCK)
    except BlockingIOError:
        return None


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """Kill a process. Returns its exit status; None if it hangs in the kernel and cannot be killed.

    Also closes its pipes.
    """
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    return process.returncode
