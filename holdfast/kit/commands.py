"""Execution of other programs, with a timeout."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from holdfast.model.errors import BackendError


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedCommand:
    """Result of a program."""

    status: int
    output: str
    errors: str


def run(
    argv: Sequence[str | Path], *, timeout: timedelta, environment: Mapping[str, str] | None = None
) -> CompletedCommand:
    """Run a program without a shell and without input.

    Raises:
        BackendError: it cannot be run, or did not end within ``timeout``; then it is killed with
            all processes that it has started.

    """
    name = str(argv[0])
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in a name
        raise BackendError(f"cannot run {name}: {error}") from error
    with process:
        try:
            output, errors = process.communicate(timeout=timeout.total_seconds())
        except subprocess.TimeoutExpired as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            seconds = f"{timeout.total_seconds():g} s"
            raise BackendError(f"{name} did not end within {seconds} and was killed") from error
    return CompletedCommand(status=process.returncode, output=output, errors=errors)
