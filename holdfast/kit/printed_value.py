"""A value that another process prints as JSON."""

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Final, Generic, TypeVar

from holdfast.kit.processes import end_children
from holdfast.kit.serial import checked_value

T = TypeVar("T")
D = TypeVar("D")

_OUTPUT_LIMIT: Final = 1 << 26
_ERRORS_LIMIT: Final = 1 << 16
"""Bytes at the end of standard error that are read: more than any traceback."""

_NOT_STARTED: Final = 126
"""Exit code of POSIX shells for a command that cannot be executed."""


class PrintedValue(Generic[T]):
    """The value that a command prints.

    One that cannot be started, as at the limit of processes or without a temporary directory, has
    ended without a value: what it would find is not worth the process that waits for it.

    Args:
        kind: type of the value.
        command: prints it as JSON on standard output.
        limit_s: time after which the command is killed.
        environment: its environment; None for that of this process.

    """

    def __init__(
        self,
        kind: type[T],
        command: Sequence[str],
        *,
        limit_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._kind = kind
        self._until = time.monotonic() + limit_s
        self._files: list[IO[bytes]] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._problem = ""
        try:
            for _ in range(2):
                self._files.append(tempfile.TemporaryFile())  # noqa: SIM115 - until ``close``
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._files[0],
                stderr=self._files[1],
                env=environment,
            )
        except OSError as error:
            self._problem = f"cannot start {command[0]}: {error.strerror}"

    @property
    def pid(self) -> int:
        """Return the process; -1 if it could not be started."""
        return -1 if self._process is None else self._process.pid

    @property
    def code(self) -> int | None:
        """Return the exit code, or the negative number of the signal; None until it is known."""
        return _NOT_STARTED if self._process is None else self._process.returncode

    def errors(self) -> str:
        """Return the end of what the command has written to its standard error."""
        if self._process is None:
            return self._problem
        handle = self._files[1].fileno()
        start = max(0, os.fstat(handle).st_size - _ERRORS_LIMIT)
        return os.pread(handle, _ERRORS_LIMIT, start).decode("utf-8", "replace")

    def value(self, default: T) -> T | None:
        """Return the value; ``default`` if none was printed; None until the command has ended."""
        if self._is_running() and time.monotonic() < self._until:
            return None
        return self.awaited(default)

    def awaited(self, default: D) -> T | D:
        """Return the value once the command has ended; ``default`` if none was printed in time."""
        if self._process is None:
            return default
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, self._until - time.monotonic()))
        end_children([self._process])
        self._files[0].seek(0)
        try:
            return checked_value(self._kind, json.loads(self._files[0].read(_OUTPUT_LIMIT)))
        except ValueError:
            return default

    def close(self) -> None:
        """End the process, and release the files."""
        if self._process is not None:
            end_children([self._process])
        for file in self._files:
            file.close()

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None
