"""Samples of the state of a machine, taken in the background.

Each source is read in a thread of its own: one that hangs, in a command or in the kernel, holds up
nothing else. As long as it hangs it is not read again.
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
"""Longer than a command may usually take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a source gave; see ``Sample``."""

    text: str = ""
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One source and when to read it."""

    read: Callable[[], Reading]
    """Raises ``BackendError`` or ``OSError`` if the source cannot be read."""

    every: timedelta
    timeout: timedelta = TIMEOUT
    """After so long the source counts as hanging."""

    close: Callable[[], None] = lambda: None
    """Lets go of what the source holds open."""


@dataclass(slots=True)
class _Schedule:
    """How it goes with one source."""

    plan: Plan
    due_at: float = 0.0
    """By the monotonic clock."""

    running_since: float | None = None
    thread: threading.Thread | None = None
    """The last one that read it."""

    is_overdue: bool = False
    before: Mapping[str, str] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    has_reported: bool = False

    @property
    def timeout_s(self) -> float:
        return self.plan.timeout.total_seconds()


Memory = Mapping[str, Mapping[str, object]]
"""By source: ``before`` and ``seen`` of its last sample, in types that JSON knows."""


class Sampler:
    """Takes samples whenever they are due."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        memory: Memory,
        *,
        clock: Clock,
    ) -> None:
        """Begin at once.

        Args:
            plans: the sources by name.
            memory: what an agent of this boot remembered, empty if there was none.
            clock: tells when samples are taken.

        """
        self._clock = clock
        self._schedules = {name: _Schedule(plan) for name, plan in plans.items()}
        self._done: SimpleQueue[tuple[str, Reading | str]] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        for name, schedule in self._schedules.items():
            schedule.before, schedule.seen = _recalled(memory.get(name))

    def fileno(self) -> int:
        """Readable when a sample is there."""
        return self._wake

    @property
    def has_all(self) -> bool:
        """Whether each source has given its first sample, or was waited for in vain."""
        return all(schedule.has_reported for schedule in self._schedules.values())

    @property
    def memory(self) -> Memory:
        """What the next agent of this boot has to know."""
        return {
            name: {"before": dict(schedule.before), "seen": sorted(schedule.seen)}
            for name, schedule in self._schedules.items()
            if schedule.seen
        }

    def take(self) -> dict[str, Sample]:
        """The samples that came since the last call. Begins to take what is due; never waits."""
        samples = self._finished()
        now = time.monotonic()
        for name, schedule in self._schedules.items():
            if schedule.running_since is None:
                if now >= schedule.due_at:
                    self._begin(name, schedule, now)
            elif not schedule.is_overdue and now - schedule.running_since > schedule.timeout_s:
                schedule.is_overdue = schedule.has_reported = True
                why = f"it has not answered for {schedule.timeout_s:g} s and is waited for"
                samples.setdefault(name, self._sample(name, schedule, why))
        return samples

    def close(self) -> None:
        """Take no more samples. What still hangs is left to end with the process."""
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

    def _read(self, name: str, plan: Plan) -> None:
        result: Reading | str = "it failed in a way that was not foreseen"
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
