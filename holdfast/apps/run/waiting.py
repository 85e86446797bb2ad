"""Sleeps between the rounds of a run, and wakes on events."""

import contextlib
import os
import select
import signal
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Final

from holdfast.adapters.host.inotify import FileWatch
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machines import LocalMachines
from holdfast.ports.clock import Clock

MIN_PAUSE: Final = timedelta(milliseconds=1)
"""Lower bound of the wait between rounds, so that no bug can spin the loop."""

UNWATCHED_PAUSE: Final = timedelta(milliseconds=50)
"""Poll interval where the system reports no file changes."""

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Waiting:
    """Sleeps until an event of the run: a timeout, its machines, other commands, or signals."""

    def __init__(self, run: RunDir, machines: LocalMachines, clock: Clock) -> None:
        self._run = run
        self._machines = machines
        self._clock = clock
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
        pause = max(moment - self._clock.now(), MIN_PAUSE)
        watch = self._watch.fileno()
        descriptors = [woken, *sources]
        if watch is None:
            pause = min(pause, UNWATCHED_PAUSE)
        else:
            descriptors.append(watch)
        ready = _readable(descriptors, pause)
        now = self._clock.now()
        for descriptor in ready:
            if descriptor in sources:
                sources[descriptor].receive(now)
        self._machines.reap()
        self._watch.refresh()
        if woken in ready:
            os.read(woken, 4096)

    @contextlib.contextmanager
    def signals(self) -> Iterator[int]:
        """Record signals that ask to end; yields a descriptor that is readable when one comes."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        earlier = {number: signal.signal(number, self._note_signal) for number in STOP_SIGNALS}
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        try:
            yield woken
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in earlier.items():
                signal.signal(number, handler)
            os.close(woken)
            os.close(wake)

    def _watch_all(self) -> None:
        """Watch the files that wake the run: agents' reports, and requests of other commands."""
        reports = [machine.directory.report for machine in self._machines.all()]
        paths = (self._run.wake, *reports)
        if paths != self._watched:
            self._watch.close()
            self._watched, self._watch = paths, FileWatch(paths)

    def _note_signal(self, number: int, _: FrameType | None) -> None:
        self.stop_signals.append(number)


def _readable(descriptors: Sequence[int], pause: timedelta) -> list[int]:
    """Return the descriptors with data, once there is one; supports more than ``select`` does."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poller.poll(pause / timedelta(milliseconds=1))]
