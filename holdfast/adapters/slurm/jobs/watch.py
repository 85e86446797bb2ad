"""Notices what changes among the jobs of a Slurm cluster, in a thread of its own."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.model.errors import BackendError

BUSY: Final = timedelta(milliseconds=250)
"""Between two looks while a job is stopped or started: each step waits for one."""

_FRESH_S: Final = 0.1
"""What was read so long ago is as good as new: the thread reads, and wakes a round."""

_STEPS_S: Final = 5.0
"""Between two looks for checkpoints."""

StepOf = Callable[[Path], int | None]
"""The iteration of the newest checkpoint in a directory."""


class JobWatch:
    """Reads the jobs, from ``start`` to ``stop``; seldom, often or not at all by itself."""

    def __init__(self, slurm: JobCommands, step_of: StepOf, changed: Callable[[], None]) -> None:
        self._slurm = slurm
        self._step_of = step_of
        self._changed = changed
        self._lock = threading.Lock()
        self._found: Mapping[str, BatchJob] = {}
        self._read_at = float("-inf")
        self._pace_s: float | None = None
        self._steps: dict[str, int | None] = {}
        self._looked_at = float("-inf")
        self._news = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a command in progress is waited for."""
        self._is_stopped = True
        self._news.set()
        if self._thread.is_alive():
            self._thread.join()

    def pace(self, pace: timedelta | None) -> None:
        """Look so often from now on; None if only when asked."""
        pace_s = None if pace is None else pace.total_seconds()
        if pace_s != self._pace_s:
            self._pace_s = pace_s
            self._news.set()

    def follow(self, folders: Iterable[str]) -> None:
        """Look into these directories of checkpoints, and no others."""
        self._steps = {folder: self._steps.get(folder) for folder in folders}

    def step(self, folder: str) -> int | None:
        """The iteration of the newest checkpoint there, as it was seconds ago; None if unknown."""
        return self._steps.get(folder)

    def invalidate(self) -> None:
        """What was read is not so any more: the next ``read`` reads anew."""
        self._read_at = float("-inf")

    def read(self) -> Mapping[str, BatchJob]:
        """All jobs, by id.

        Raises:
            BackendError: they cannot be read.

        """
        with self._lock:
            if time.monotonic() > self._read_at + _FRESH_S:
                self._found = self._slurm.batch_jobs()
                self._read_at = time.monotonic()
            return self._found

    def _run(self) -> None:
        while not self._is_stopped:
            pace_s = self._pace_s
            if self._news.wait(pace_s):
                self._news.clear()
                continue
            before = self._found
            try:
                is_new = self.read() != before
            except BackendError:
                continue  # the round tells of it
            self._look()
            if is_new or pace_s == BUSY.total_seconds():
                self._changed()

    def _look(self) -> None:
        """A file system that hangs keeps this thread, and no round."""
        if time.monotonic() > self._looked_at + _STEPS_S:
            self._looked_at = time.monotonic()
            self._steps = {one: self._step_of(Path(one)) for one in tuple(self._steps)}
