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
    patience: timedelta = TIMEOUT
    """After so long the source counts as hanging."""

    close: Callable[[], None] = lambda: None
    """Lets go of what the source holds open."""


@dataclass(slots=True)
class _Remediation:
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
    has_answered: bool = False

    @property
    def timeout_s(self) -> float:
        return self.plan.patience.total_seconds()


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
        self._courses = {name: _Remediation(plan) for name, plan in plans.items()}
        self._done: SimpleQueue[tuple[str, Reading | str]] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        for name, remediation in self._courses.items():
            remediation.before, remediation.seen = _recalled(memory.get(name))

    def fileno(self) -> int:
        """Readable when a sample is there."""
        return self._wake

    @property
    def has_all(self) -> bool:
        """Whether each source has given its first sample, or was waited for in vain."""
        return all(remediation.has_answered for remediation in self._courses.values())

    @property
    def memory(self) -> Memory:
        """What the next agent of this boot has to know."""
        return {
            name: {"before": dict(remediation.before), "seen": sorted(remediation.seen)}
            for name, remediation in self._courses.items()
            if remediation.seen
        }

    def take(self) -> dict[str, Sample]:
        """The samples that came since the last call. Begins to take what is due; never waits."""
        samples = self._finished()
        now = time.monotonic()
        for name, remediation in self._courses.items():
            if remediation.running_since is None:
                if now >= remediation.due_at:
                    self._begin(name, remediation, now)
            elif (
                not remediation.is_overdue
                and now - remediation.running_since > remediation.timeout_s
            ):
                remediation.is_overdue = remediation.has_answered = True
                why = f"it has not answered for {remediation.timeout_s:g} s and is waited for"
                samples.setdefault(name, self._sample(name, remediation, why))
        return samples

    def close(self) -> None:
        """Take no more samples. What still hangs is left to end with the process."""
        for remediation in self._courses.values():
            remediation.plan.close()
            if remediation.running_since is None and remediation.thread is not None:
                remediation.thread.join()  # its sample was taken, and it may be about to wake us
        if all(remediation.running_since is None for remediation in self._courses.values()):
            os.close(self._wake)

    def _begin(self, name: str, remediation: _Remediation, now: float) -> None:
        remediation.running_since = now
        remediation.is_overdue = False
        remediation.due_at = now + remediation.plan.every.total_seconds()
        reader = threading.Thread(target=self._read, args=(name, remediation.plan), daemon=True)
        remediation.thread = reader
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
            remediation = self._courses[name]
            remediation.running_since = None
            remediation.has_answered = True
            samples[name] = self._sample(name, remediation, result)

    def _sample(self, name: str, remediation: _Remediation, result: Reading | str) -> Sample:
        now = self._clock.now()
        if isinstance(result, str):
            return Sample(
                name=name,
                taken_at=now,
                error=result,
                before=remediation.before,
                seen=remediation.seen,
            )
        seen = remediation.seen.union(result.values)
        sample = Sample(
            name=name,
            taken_at=now,
            text=result.text,
            values=result.values,
            before=remediation.before,
            seen=seen,
        )
        remediation.before, remediation.seen = result.values, seen
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
