"""Running a command of a vendor: bounded in time, in output and in what it leaves behind."""

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
"""Bytes of output that are taken; ``nvidia-smi -q -x`` writes about 50 KB for each GPU."""

_BLOCK: Final = 64 * 1024
_POLL_S: Final = 0.1
"""Between two looks whether the command has ended while something else holds its pipe open."""


class NotStarted(BackendError):
    """A command could not be started, so nothing is known of what it was to find out."""


def never() -> bool:
    """Nobody breaks a command off."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a command did."""

    stdout: str
    stderr: str
    status: int
    """Its exit status; negative if a signal ended it."""


def run_command(
    argv: Sequence[str],
    *,
    timeout: timedelta,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    is_over: Callable[[], bool] = never,
) -> Result:
    """Run ``argv`` in a session of its own, in ``directory``, and take what it writes.

    ``environment`` is added to that of this process. ``is_over`` is asked all the time: once it is,
    the command is killed, or not even started.

    A command that hangs in the kernel cannot be ended; then this does not return before it does.

    Raises:
        NotStarted: it cannot be started.
        BackendError: it took longer than ``timeout``, wrote too much or was broken off; it and all
            that it started in its session were killed.

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
                os.killpg(process.pid, signal.SIGKILL)  # of the same session: what it started
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
        # Looked at first: what it wrote before it ended is in the pipes by now.
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
        _go_on(name, timeout, deadline, is_over)
    while process.poll() is None:  # it closed its output and goes on
        _go_on(name, timeout, deadline, is_over)
        time.sleep(_POLL_S)
    stdout, stderr = outputs.values()
    return bytes(stdout), bytes(stderr)


def _go_on(name: str, timeout: timedelta, deadline: float, is_over: Callable[[], bool]) -> None:
    if time.monotonic() > deadline:
        raise BackendError(f"{name} did not end within {timeout.total_seconds():g} s")
    if is_over():
        raise BackendError(f"{name} was broken off")


def _text(output: bytes) -> str:
    return output.decode("utf-8", errors="replace")


class Companion:
    """A command that runs beside."""

    def __init__(self, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
        """Watch it."""
        self._process = process
        self._output = output

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def output(self) -> str:
        """The beginning of what it wrote so far."""
        return _text(os.pread(self._output.fileno(), _BLOCK, 0)).strip()


@contextlib.contextmanager
def beside(argv: Sequence[str]) -> Iterator[Companion]:
    """Have ``argv`` run meanwhile; it is killed in the end, with all that it started.

    Raises:
        BackendError: it cannot be started.

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
            raise BackendError(f"cannot start {argv[0]}: {error.strerror}") from error
        with process:
            try:
                yield Companion(process, output)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
