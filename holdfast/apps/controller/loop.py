"""The loop of a controller: rounds while it leads, and sleep between them."""

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from holdfast.apps.controller.metrics import ControllerMetrics
from holdfast.apps.controller.progress import Progress
from holdfast.engine.job_reconciler import JobReconciler
from holdfast.engine.node_reconciler import NodeReconciler
from holdfast.ports.clock import Clock
from holdfast.ports.leadership import Leadership


class Wakeup:
    """Like ``threading.Event``, but made for signal handlers.

    Setting it takes no lock, which the thread that the handler interrupts might be holding.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def set(self) -> None:
        """Have the present wait, or else the next one, end at once."""
        with suppress(BlockingIOError):  # it is full of wake-ups already
            os.write(self._writer, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait until ``set`` was called, or for so long. Returns whether it was called."""
        ready, _, _ = select.select([self._reader], [], [], max(seconds, 0))
        if ready:
            os.read(self._reader, 65536)
        return bool(ready)


MIN_PAUSE: Final = timedelta(milliseconds=10)
"""Between two rounds, so that a burst of news is one round, and no bug can spin the loop."""

STANDBY: Final = timedelta(seconds=1)
"""How often a controller that does not lead, or cannot read the cluster yet, looks again."""

AWAY_PAUSE: Final = timedelta(seconds=2)
"""The longest sleep while a node is out of service: the end of its pods wakes nobody."""


class ControllerLoop:
    """Makes rounds until it is stopped."""

    def __init__(
        self,
        nodes: NodeReconciler,
        jobs: JobReconciler | None = None,
        *,
        leadership: Leadership,
        is_ready: Callable[[], bool],
        metrics: ControllerMetrics,
        progress: Progress,
        wake: Wakeup,
        clock: Clock,
    ) -> None:
        """Make rounds of ``nodes``, and of ``jobs`` after each.

        Args:
            nodes: the first half of a round.
            jobs: the second; None where no job is restarted.
            leadership: no round is made without it.
            is_ready: no round is made before.
            metrics: is shown each round, and knows whether a node is out of service.
            progress: is told when a round has finished.
            wake: set, from any thread, when a round should be made soon.
            clock: the time.

        """
        self._nodes = nodes
        self._jobs = jobs
        self._leadership = leadership
        self._is_ready = is_ready
        self._metrics = metrics
        self._progress = progress
        self._wake = wake
        self._clock = clock
        self._is_stopped = False

    def stop(self) -> None:
        """Make no other round. May be called from any thread, and by a signal."""
        self._is_stopped = True
        self._wake.set()

    def run(self) -> None:
        """Make rounds until ``stop`` is called.

        Raises:
            StorageFull: nothing can be recorded, so nothing may be done.
            StateDamaged: nothing can be recorded until a restart has restored the state.

        """
        while not self._is_stopped:
            wake_at = self._round(self._clock.now())
            time.sleep(MIN_PAUSE.total_seconds())
            self._wake.wait((wake_at - self._clock.now()).total_seconds())

    def _round(self, began: datetime) -> datetime:
        if not self._is_ready() or not self._leadership.is_held():
            self._progress.finished()
            if not self._leadership.is_held():
                self._progress.was_read()  # as far as a standby has to
            return began + STANDBY
        wake_at = self._nodes.step()
        if self._jobs is not None:
            wake_at = min(wake_at, self._jobs.step())
        ended = self._clock.now()
        self._metrics.round_made(ended - began)
        self._progress.finished()
        return min(wake_at, ended + AWAY_PAUSE) if self._metrics.is_busy() else wake_at
