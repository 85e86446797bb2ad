"""Runs vendor commands with limits on time and output, and kills the processes they leave."""

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Final

from holdfast.model.errors import BackendError

LARGEST_OUTPUT: Final = 8 * 1024 * 1024
"""Maximum output in bytes; ``nvidia-smi -q -x`` writes about 50 KB per GPU."""

_BLOCK: Final = 64 * 1024
_POLL_S: Final = 0.1
"""Interval of checks whether the command has exited while another process holds its pipe open."""


class NotStarted(BackendError):
    """A command could not be started, so its check has no result."""


def never() -> bool:
    """Return False: the command is never cancelled."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of a command."""

    stdout: str
    stderr: str
    status: int
    """Exit status; negative if a signal terminated the command."""


def run_command(
    argv: Sequence[str],
    *,
    timeout: timedelta,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    is_over: Callable[[], bool] = never,
) -> Result:
    """Run ``argv`` in its own session, in ``directory``, and capture its output.

    ``environment`` is added to that of this process. ``is_over`` is polled; once it returns True,
    the command is killed, or not started at all.

    A command that hangs in the kernel cannot be killed; this function returns only after it exits.

    Raises:
        NotStarted: the command cannot be started.
        BackendError: the command exceeded ``timeout`` or ``LARGEST_OUTPUT``, or was cancelled; all
           processes in its session were killed.

    """
    if is_over():
        raise NotStarted(f"{argv[0]} not started: shutting down")
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
            cwd=directory,
        )
    except OSError as error:
        raise NotStarted(f"cannot start {argv[0]}: {error.strerror}") from error
    with process:
        try:
            stdout, stderr = _outputs(process, argv[0], timeout, is_over)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # all processes of its session
        status = process.wait()
    return Result(stdout=_text(stdout), stderr=_text(stderr), status=status)


def _outputs(
    process: subprocess.Popen[bytes], name: str, timeout: timedelta, is_over: Callable[[], bool]
) -> tuple[bytes, bytes]:
    assert process.stdout is not None  # noqa: S101 - both are pipes
    assert process.stderr is not None  # noqa: S101
    outputs = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    deadline = time.monotonic() + timeout.total_seconds()
    poll = select.poll()
    for fd in outputs:
        poll.register(fd, select.POLLIN)
    open_pipes = set(outputs)
    while open_pipes:
        # Checked before the pipes are read: all that it wrote before it exited is in them by then.
        has_ended = process.poll() is not None
        ready = poll.poll(0 if has_ended else _POLL_S * 1000)
        for fd, _ in ready:
            block = os.read(fd, _BLOCK)
            outputs[fd] += block
            if not block:
                poll.unregister(fd)
                open_pipes.discard(fd)
        if sum(map(len, outputs.values())) > LARGEST_OUTPUT:
            raise BackendError(f"{name} wrote more than {LARGEST_OUTPUT} bytes")
        if has_ended and not ready:
            break
        _check_limits(name, timeout, deadline, is_over)
    while process.poll() is None:  # it closed its output and is still running
        _check_limits(name, timeout, deadline, is_over)
        time.sleep(_POLL_S)
    stdout, stderr = outputs.values()
    return bytes(stdout), bytes(stderr)


def _check_limits(
    name: str, timeout: timedelta, deadline: float, is_over: Callable[[], bool]
) -> None:
    if time.monotonic() > deadline:
        raise BackendError(f"{name} did not end within {timeout.total_seconds():g} s")
    if is_over():
        raise BackendError(f"{name} was cancelled")


def _text(output: bytes) -> str:
    return output.decode("utf-8", errors="replace")


class BackgroundCommand:
    """Command that runs in the background."""

    def __init__(self, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
        """Create it for a running process and the file of its output."""
        self._process = process
        self._output = output

    @property
    def status(self) -> int | None:
        """Its exit status, negative if a signal terminated it; None while it runs."""
        return self._process.poll()

    def output(self) -> str:
        """Return the beginning of its output so far."""
        return _text(os.pread(self._output.fileno(), _BLOCK, 0)).strip()


@contextlib.contextmanager
def background_command(argv: Sequence[str]) -> Iterator[BackgroundCommand]:
    """Run ``argv`` in the background; on exit its whole session is killed.

    Raises:
        NotStarted: the command cannot be started.

    """
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            raise NotStarted(f"cannot start {argv[0]}: {error.strerror}") from error
        with process:
            try:
                yield BackgroundCommand(process, output)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
