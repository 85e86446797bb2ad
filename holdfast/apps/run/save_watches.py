"""Background processes for the saves of running jobs, such as their verification."""

import os
import subprocess
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Final

from holdfast.apps.launch.checkpoint_watch import start_watch

_INTERVAL: Final = timedelta(seconds=5)
"""Time between two looks for a first save. Shorter jobs are not worth a process."""


Start = Callable[[str, IO[bytes] | None], subprocess.Popen[bytes]]
"""Starts the process of a directory, with its output to a file."""


class SaveWatches:
    """One process, ``holdfast checkpoint watch``, for each directory to which jobs save.

    Args:
        log: file for their output; None: damage goes to standard error.
        now: time.
        start: starts another process instead.
        is_restarted: whether a process that has ended by itself is started again.

    """

    def __init__(
        self,
        log: Path | None,
        now: datetime,
        start: Start = start_watch,
        *,
        is_restarted: bool = False,
    ) -> None:
        self._log, self._start, self._is_restarted = log, start, is_restarted
        self._next = now + _INTERVAL
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}

    def advance(self, folders: Collection[Path], now: datetime) -> None:
        """Start the process of each directory with a first entry, and end those of other ones."""
        for folder in self._processes.keys() - set(folders):
            _end(self._processes.pop(folder))
        self._next = min(self._next, now + _INTERVAL)  # the clock may be set back
        if now < self._next:
            return
        self._next = now + _INTERVAL
        for folder, process in list(self._processes.items()) if self._is_restarted else ():
            if process.poll() is not None:
                del self._processes[folder]
        for folder in set(folders) - self._processes.keys():
            with suppress(OSError):  # no directory yet, or no memory for a process: tried again
                if any(os.scandir(folder)):
                    self._processes[folder] = self._started(folder)

    def _started(self, folder: Path) -> subprocess.Popen[bytes]:
        if self._log is None:
            return self._start(str(folder), None)
        with self._log.open("ab") as log:
            return self._start(str(folder), log)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            _end(process)
        self._processes.clear()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
