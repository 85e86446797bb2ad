"""The background verification of the saves of running jobs."""

import os
import subprocess
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.apps.launch.checkpoint_watch import start_watch

_INTERVAL: Final = timedelta(seconds=5)
"""Time between two looks for a first save. Shorter jobs are not worth a process."""


class SaveWatches:
    """One ``holdfast checkpoint watch`` for each directory to which jobs save.

    Args:
        log: file for their output; None: damage goes to standard error.
        now: time.

    """

    def __init__(self, log: Path | None, now: datetime) -> None:
        self._log = log
        self._next = now + _INTERVAL
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}

    def advance(self, folders: Collection[Path], now: datetime) -> None:
        """Start the watch of each directory with a first entry, and end those of other ones."""
        for folder in self._processes.keys() - set(folders):
            _end(self._processes.pop(folder))
        if now < self._next:
            return
        self._next = now + _INTERVAL
        for folder in set(folders) - self._processes.keys():
            with suppress(OSError):  # no directory yet, or no memory for a process: tried again
                if any(os.scandir(folder)):
                    self._processes[folder] = self._started(folder)

    def _started(self, folder: Path) -> subprocess.Popen[bytes]:
        if self._log is None:
            return start_watch(str(folder), None)
        with self._log.open("ab") as log:
            return start_watch(str(folder), log)

    def close(self) -> None:
        """End all watches."""
        for process in self._processes.values():
            _end(process)
        self._processes.clear()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
