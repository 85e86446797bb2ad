"""Sleeps between the rounds of a run, and wakes on events."""

import os
import select
import signal
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.inotify import FileWatch
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machines import LocalMachines
from holdfast.engine.repeats import AFTER_ERROR, RepeatLimiter
from holdfast.kit.signals import heeded, received
from holdfast.model.errors import BackendError, StateDamaged, StorageFull
from holdfast.model.events import CallFailed
from holdfast.ports.clock import Clock

MIN_PAUSE: Final = timedelta(milliseconds=1)
"""Lower bound of the wait between rounds, so that no bug can spin the loop."""

UNWATCHED_PAUSE: Final = timedelta(milliseconds=50)
"""Poll interval where the system reports no file changes."""

MAX_PAUSE: Final = timedelta(seconds=1)
"""Upper bound of the wait between rounds: a clock that is set back must not prolong it."""

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Waiting:
    """Sleeps until an event of the run: a timeout, its machines, other commands, or signals.

    Args:
        run: directory of the run.
        machines: whose ranks it waits for.
        clock: the time.
        grace: maximum time that ranks have to save after SIGTERM.
        signals_per_stop: number of signals in a request to end; after more, ranks end at once.

    """

    def __init__(
        self,
        run: RunDir,
        machines: LocalMachines,
        clock: Clock,
        grace: timedelta,
        signals_per_stop: int = 1,
    ) -> None:
        self._run = run
        self._machines = machines
        self._clock = clock
        self._grace = grace
        self._signals_per_stop = signals_per_stop
        self._watched: tuple[Path, ...] = ()
        self._watch = FileWatch(())
        self.stop_signals: list[int] = []
        """Signals that asked the run to end."""

    def close(self) -> None:
        """Stop watching."""
        self._watch.close()

    def until(self, moment: datetime, woken: int) -> None:
        """Sleep until ``moment`` or an event, and process the event."""
        self._watch_all()
        sources = {
            machine.channel.fileno(): machine
            for machine in self._machines.all()
            if machine.channel is not None
        }
        pause = min(max(moment - self._clock.now(), MIN_PAUSE), MAX_PAUSE)
        watch = self._watch.fileno()
        events = dict.fromkeys([woken, *sources], select.POLLIN)
        events |= {
            descriptor: select.POLLIN | select.POLLOUT
            for descriptor, machine in sources.items()
            if machine.unsent
        }
        if watch is None:
            pause = min(pause, UNWATCHED_PAUSE)
        else:
            events[watch] = select.POLLIN
        ready = _ready(events, pause)
        now = self._clock.now()
        for descriptor in ready:
            if descriptor in sources:
                sources[descriptor].exchange(now)
        self._machines.reap()
        self._watch.refresh()
        if woken in ready:
            os.read(woken, 4096)

    def after_error(self, error: BackendError, repeats: RepeatLimiter, woken: int) -> None:
        """Pause after a round failed, as on a full disk; the ranks continue meanwhile.

        Raises:
            BackendError: ``error``, if the state is damaged, or if a signal asked to end; then the
                ranks have had their grace period.

        """
        if isinstance(error, StateDamaged):
            raise error
        if self.stop_signals:
            self._terminate_ranks(woken)
            raise error
        now = self._clock.now()
        remedy = "free some space" if isinstance(error, StorageFull) else "correct the cause"
        why = f"{error}; {remedy}: the ranks continue, but are not restarted meanwhile"
        repeats.emit(CallFailed(what="recording the state", error=why), now)
        self.until(now + AFTER_ERROR, woken)

    def _terminate_ranks(self, woken: int) -> None:
        """Send SIGTERM to all ranks; wait for their ends, the grace period or another signal."""
        for machine in self._machines.all():
            machine.terminate_task()
        deadline = self._clock.elapsed() + self._grace
        while (
            any(one.task is not None and one.task.exit_code is None for one in self._machines.all())
            and self._clock.elapsed() < deadline
            and len(self.stop_signals) <= self._signals_per_stop
        ):
            self.until(self._clock.now() + MAX_PAUSE, woken)

    def signals(self) -> AbstractContextManager[int]:
        """Record signals that ask to end; yields a descriptor that is readable when one comes."""
        numbers = heeded(STOP_SIGNALS)
        return received(numbers, lambda number, _: self.stop_signals.append(number))

    def _watch_all(self) -> None:
        """Watch the files that wake the run: agents' reports, and requests of other commands."""
        reports = [machine.directory.report for machine in self._machines.all()]
        paths = (self._run.wake, *reports)
        if paths != self._watched:
            self._watch.close()
            self._watched, self._watch = paths, FileWatch(paths)


def _ready(events: Mapping[int, int], pause: timedelta) -> list[int]:
    """Return descriptors with one of their events, once there is one; ``select`` takes fewer."""
    poller = select.poll()
    for descriptor, mask in events.items():
        poller.register(descriptor, mask)
    return [descriptor for descriptor, _ in poller.poll(pause / timedelta(milliseconds=1))]
