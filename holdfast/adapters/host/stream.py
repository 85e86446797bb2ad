"""A command that goes on for as long as the agent does, and is started again when it ends."""

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
"""Bytes that are taken at once."""

LONGEST: Final = 1024 * 1024
"""Bytes of a line; what is longer is left out."""

BACKOFF: Final = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=1))
"""Delays before a command is started again."""

PROVEN: Final = timedelta(seconds=5)
"""A command that has lived so long, or has written a line, was started well."""

_PIPE_BYTES: Final = 1024 * 1024  # as much as a user may ask for (pipe(7), pipe-max-size)
_ERROR_OUTPUT_BYTES: Final = 1024
_END_S: Final = 1.0


class CommandStream:
    """The lines of a command. What it has written and nobody read yet makes it wait."""

    def __init__(
        self, argv: Callable[[], Sequence[str]], *, silence: timedelta | None = None
    ) -> None:
        """Run what ``argv`` says at each start; it is first started by ``read``.

        Args:
            argv: gives the argument list.
            silence: a command that writes nothing for so long hangs and is started again; None
                for one that may have nothing to say.

        """
        self.error = ""
        """Why there is nothing to read; empty while the command runs."""

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
        """Readable when the command has written something; None while it does not run."""
        return None if self._process is None else _descriptor(self._process.stdout)

    def read(self) -> list[bytes]:
        """The lines that came since the last call; a bounded number. Never waits."""
        with self._lock:
            return self._read(time.monotonic())

    def close(self) -> None:
        """End the command, and all that it started in its session, for good."""
        with self._lock:
            self._start_at = math.inf
            self._end()

    def _read(self, now: float) -> list[bytes]:
        if self._process is None and now >= self._start_at:
            self._start(now)
        process = self._process
        if process is None:
            return []
        has_ended = process.poll() is not None  # looked at first: what it wrote is in the pipe
        data = _take(process.stdout)
        # Afterwards: what it said before it closed its output is there.
        self._error_output = (self._error_output + (_take(process.stderr) or b""))[
            -_ERROR_OUTPUT_BYTES:
        ]
        if data:
            self._output_at = now
        elif data == b"" or has_ended:
            self._fail(f"ended with {_ended(process)}{self._why()}", now)
        elif self._silence is not None and now - self._output_at > self._silence.total_seconds():
            self._fail(f"has said nothing for {self._silence.total_seconds():g} s", now)
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
        with contextlib.suppress(OSError):  # users have an allowance for all their pipes together
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
    """What is in a pipe; empty at its end, None if nothing is there as yet."""
    try:
        return os.read(_descriptor(pipe), BLOCK)
    except BlockingIOError:
        return None


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """End a process. Returns its exit status; None if it cannot be ended, as it is in the kernel.

    The pipes are closed.
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
