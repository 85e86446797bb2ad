"""Locks run names, so that one run of a name is active at a time."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from holdfast.adapters.local.layout import RunDir
from holdfast.kit.files import open_lock, storage_error
from holdfast.model.errors import ConfigError

_TRIES: Final = 5
_PAUSE_S: Final = 0.02  # commands that only check whether the run is active release the lock sooner


@contextmanager
def locked(run: RunDir) -> Iterator[None]:
    """Hold the lock of a run; the kernel releases it when the process ends, however it ends.

    Raises:
        ConfigError: another process holds it.

    """
    run.lock.parent.mkdir(parents=True, exist_ok=True)
    with _opened(run.lock) as file:
        if not _locks(file):
            raise ConfigError(
                f"--name: run {run.name!r} is already active; choose another name, or cancel that "
                f"run first: holdfast jobs cancel {run.name}"
            )
        yield


@contextmanager
def guarded(run: RunDir) -> Iterator[None]:
    """Wait for and hold the lock under which clusters are created and their directories moved."""
    guard = run.lock.with_name(f"{run.name}.guard")
    guard.parent.mkdir(parents=True, exist_ok=True)
    with _opened(guard) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _opened(path: Path) -> IO[bytes]:
    try:
        return open(open_lock(path), "rb")
    except OSError as error:
        raise storage_error(error, path) from error


def _locks(file: IO[bytes]) -> bool:
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        else:
            return True
    return False


def is_held(run: RunDir) -> bool:
    """Whether the run is active."""
    try:
        with run.lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
