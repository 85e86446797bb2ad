"""Samples the state of a machine in the background.

Each source is read in its own thread, so that one that hangs, in a command or in the kernel, does
not delay the others. A source that hangs is not read again until it returns.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Final

from holdfast.detectors.contract import Sample
from holdfast.model.errors import BackendError
from holdfast.ports.clock import Clock

TIMEOUT: Final = timedelta(seconds=45)
"""Default timeout of a source; longer than the timeout of most commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Result of reading a source; see ``Sample``."""

    text: str = ""
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSchedule:
    """A source and its schedule."""

    read: Callable[[], Reading]
    """Raises ``BackendError`` or ``OSError`` if the source cannot be read."""

    every: timedelta
    timeout: timedelta = TIMEOUT
    """After this long a reading counts as hung."""

    close: Callable[[], None] = lambda: None
    """Closes what the source keeps open."""


@dataclass(slots=True)
class _Schedule:
    """State of the readings of one source."""

    plan: SourceSchedule
    due_at: float = 0.0
    """Monotonic time of the next reading, in seconds."""

    running_since: float | None = None
    thread: threading.Thread | None = None
    """Thread of the latest reading."""

    is_overdue: bool = False
    before: Mapping[str, str] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    has_reported: bool = False

    @property
    def timeout_s(self) -> float:
        return self.plan.timeout.total_seconds()


Memory = Mapping[str, Mapping[str, object]]
"""``before`` and ``seen`` of the last sample of each source, in JSON types."""


class Sampler:
    """Takes samples of all sources when they are due."""

    def __init__(
        self,
        plans: Mapping[str, SourceSchedule],
        memory: Memory,
        *,
        clock: Clock,
    ) -> None:
        """Start sampling.

        Args:
            plans: sources by name.
            memory: ``memory`` of the previous agent in this boot; empty if there was none.
            clock: for the times of samples.

        """
        self._clock = clock
        self._schedules = {name: _Schedule(plan) for name, plan in plans.items()}
        self._done: SimpleQueue[tuple[str, Reading | str]] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        for name, schedule in self._schedules.items():
            schedule.before, schedule.seen = _recalled(memory.get(name))

    def fileno(self) -> int:
        """File descriptor that is readable when a sample is ready."""
        return self._wake

    @property
    def has_all(self) -> bool:
        """Whether each source has returned its first sample or timed out."""
        return all(schedule.has_reported for schedule in self._schedules.values())

    @property
    def memory(self) -> Memory:
        """State for the next agent in this boot."""
        return {
            name: {"before": dict(schedule.before), "seen": sorted(schedule.seen)}
            for name, schedule in self._schedules.items()
            if schedule.seen
        }

    def take(self) -> dict[str, Sample]:
        """Samples since the previous call. Starts the readings that are due; never blocks."""
        samples = self._finished()
        now = time.monotonic()
        for name, schedule in self._schedules.items():
            if schedule.running_since is None:
                if now >= schedule.due_at:
                    self._begin(name, schedule, now)
            elif not schedule.is_overdue and now - schedule.running_since > schedule.timeout_s:
                schedule.is_overdue = schedule.has_reported = True
                why = f"no result after {schedule.timeout_s:g} s; still waiting"
                samples.setdefault(name, self._sample(name, schedule, why))
        return samples

    def close(self) -> None:
        """Stop sampling. Hung readings end with the process."""
        for schedule in self._schedules.values():
            schedule.plan.close()
            if schedule.running_since is None and schedule.thread is not None:
                schedule.thread.join()  # its sample was taken, and it may be about to wake us
        if all(schedule.running_since is None for schedule in self._schedules.values()):
            os.close(self._wake)

    def _begin(self, name: str, schedule: _Schedule, now: float) -> None:
        schedule.running_since = now
        schedule.is_overdue = False
        schedule.due_at = now + schedule.plan.every.total_seconds()
        reader = threading.Thread(target=self._read, args=(name, schedule.plan), daemon=True)
        schedule.thread = reader
        reader.start()

    def _read(self, name: str, plan: SourceSchedule) -> None:
        result: Reading | str = "unexpected error in the reader"
        try:
            result = plan.read()
        except OSError as error:
            result = error.strerror or str(error)
        except BackendError as error:
            result = str(error)
        finally:
            self._done.put((name, result))
            os.eventfd_write(self._wake, 1)

    def _finished(self) -> dict[str, Sample]:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return {}
        samples: dict[str, Sample] = {}
        while True:
            try:
                name, result = self._done.get_nowait()
            except Empty:
                return samples
            schedule = self._schedules[name]
            schedule.running_since = None
            schedule.has_reported = True
            samples[name] = self._sample(name, schedule, result)

    def _sample(self, name: str, schedule: _Schedule, result: Reading | str) -> Sample:
        now = self._clock.now()
        if isinstance(result, str):
            return Sample(
                name=name,
                taken_at=now,
                error=result,
                before=schedule.before,
                seen=schedule.seen,
            )
        seen = schedule.seen.union(result.values)
        sample = Sample(
            name=name,
            taken_at=now,
            text=result.text,
            values=result.values,
            before=schedule.before,
            seen=seen,
        )
        schedule.before, schedule.seen = result.values, seen
        return sample


def _recalled(memory: object) -> tuple[Mapping[str, str], frozenset[str]]:
    if not isinstance(memory, dict):
        return {}, frozenset()
    before, seen = memory.get("before"), memory.get("seen")
    if not isinstance(before, dict) or not isinstance(seen, list):
        return {}, frozenset()
    return (
        {str(name): str(value) for name, value in before.items()},
        frozenset(map(str, seen)),
    )
