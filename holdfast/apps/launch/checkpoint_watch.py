"""Starts ``holdfast checkpoint watch`` and ``mirror`` for a job. Standard library only."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Final

from holdfast.model.jobs import CHECKPOINT_WATCH_VARIABLE

_MIRROR_INTERVAL: Final = "10s"
"""Time between two scans of a directory; each lists the copies, too."""


def is_watch_enabled(environment: Mapping[str, str]) -> bool:
    """Return whether saves are to be verified in the background, and nobody does so yet."""
    return environment.get(CHECKPOINT_WATCH_VARIABLE, "") != "0"


def start_watch(folder: str, log: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """Start the watch of a checkpoint directory; it ends with this process.

    Args:
        folder: the directory; it need not exist.
        log: gets its output; None: damage goes to standard error, and nothing else is shown.

    """
    return _started(log, "watch", folder)


def start_mirror(folder: str, location: str, log: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """Start to copy the checkpoints of a directory; it ends with this process.

    Args:
        folder: the directory; it need not exist.
        location: of the copies.
        log: as in ``start_watch``.

    """
    return _started(log, "mirror", folder, location, "--interval", _MIRROR_INTERVAL)


def _started(log: IO[bytes] | None, *argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "holdfast", "checkpoint", *argv),
            *("--exit-with", str(os.getpid())),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if log is None else log,
        stderr=log,
        start_new_session=True,  # Ctrl-C ends this process, and that ends the watch
    )
