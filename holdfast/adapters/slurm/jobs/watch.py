"""Polls the jobs of a Slurm cluster in its own thread, and reports changes."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.model.errors import BackendError
from holdfast.model.set_aside import SetAside

BUSY: Final = timedelta(milliseconds=250)
"""Poll interval while a job is stopped or started: each step waits for a poll."""

_FRESH_S: Final = 0.1
"""Maximum age in seconds of a result that ``read`` returns again: the thread polls, and its result
triggers a round."""

_STEPS_S: Final = 5.0
"""Seconds between two searches for checkpoints."""

_UNREADABLE: Final = (BackendError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What a search may raise: users choose the directories and what is in them."""

StepOf = Callable[[Path], int | None]
"""Returns the iteration of the newest checkpoint in a directory; raises ``BackendError``."""

MovedFrom = Callable[[Path], tuple[SetAside, ...]]
"""Returns the checkpoints that were moved out of a directory."""


class JobWatch:
    """Polls the jobs from ``start`` to ``stop``, at a variable interval or on request."""

    def __init__(
        self,
        slurm: JobCommands,
        step_of: StepOf,
        moved_from: MovedFrom,
        changed: Callable[[], None],
    ) -> None:
        self._slurm = slurm
        self._step_of = step_of
        self._moved_from = moved_from
        self._changed = changed
        self._lock = threading.Lock()
        self._found: Mapping[str, BatchJob] = {}
        self._read_from = float("-inf")
        self._read_at = float("-inf")
        self._changed_at = float("-inf")
        self._interval_s: float | None = None
        self._steps: dict[str, int | None] = {}
        self._moved: dict[str, tuple[SetAside, ...]] = {}
        self._problems: dict[str, str] = {}
        self._steps_read_at = float("-inf")
        self._wakeup = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, after the command in progress has ended."""
        self._is_stopped = True
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join()

    def set_interval(self, interval: timedelta | None) -> None:
        """Set the poll interval; None to read on request only."""
        interval_s = None if interval is None else interval.total_seconds()
        if interval_s != self._interval_s:
            self._interval_s = interval_s
            self._wakeup.set()

    def follow(self, folders: Iterable[str]) -> None:
        """Set the checkpoint directories to search."""
        self._steps = {folder: self._steps.get(folder) for folder in folders}

    def step(self, folder: str) -> int | None:
        """Return the newest iteration that the last search found, seconds ago; None if unknown."""
        return self._steps.get(folder)

    def moved(self, folder: str) -> tuple[SetAside, ...]:
        """Return the checkpoints that were moved out of a directory, as of the last search."""
        return self._moved.get(folder, ())

    def problem(self, folder: str) -> str:
        """Return why the last search could not read a directory; empty if it could."""
        return self._problems.get(folder, "")

    def invalidate(self) -> None:
        """Discard the last result, and that of a call in progress: the next ``read`` asks Slurm."""
        self._changed_at = time.monotonic()

    def read(self) -> Mapping[str, BatchJob]:
        """Return all jobs, by ID.

        Raises:
            BackendError: the jobs cannot be read.

        """
        with self._lock:
            now = time.monotonic()
            if now > self._read_at + _FRESH_S or self._read_from <= self._changed_at:
                self._found = self._slurm.batch_jobs()
                self._read_from, self._read_at = now, time.monotonic()
            return self._found

    def _run(self) -> None:
        while not self._is_stopped:
            interval_s = self._interval_s
            if self._wakeup.wait(interval_s):
                self._wakeup.clear()
                continue
            before = self._found
            try:
                is_new = self.read() != before
            except BackendError:
                continue  # the round reports it
            has_moved = self._refresh()
            if is_new or has_moved or interval_s == BUSY.total_seconds():
                self._changed()

    def _refresh(self) -> bool:
        """Search the checkpoint directories, each on its own: a bad one hides no other.

        A hung file system blocks only this thread.

        Returns:
            Whether other checkpoints were moved than in the search before, or other directories
            cannot be read.

        """
        if time.monotonic() <= self._steps_read_at + _STEPS_S:
            return False
        self._steps_read_at = time.monotonic()
        before = self._moved, self._problems
        steps: dict[str, int | None] = {}
        moved: dict[str, tuple[SetAside, ...]] = {}
        problems: dict[str, str] = {}
        for folder in tuple(self._steps):
            steps[folder] = None
            try:
                steps[folder] = self._step_of(Path(folder))
                moved[folder] = self._moved_from(Path(folder))
            except _UNREADABLE as error:
                problems[folder] = str(error)
        self._steps, self._moved, self._problems = steps, moved, problems
        return (moved, problems) != before
