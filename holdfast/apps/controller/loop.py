"""Reconciliation loop of a controller: rounds while it is the leader, and waits between them."""

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
    """Wakes the loop, from any thread and from signal handlers.

    Unlike ``threading.Event``, ``set`` takes no lock, as the interrupted thread might hold it.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def set(self) -> None:
        """End the current wait, or else the next one, at once."""
        with suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._writer, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait until ``set`` is called, or for ``seconds``. Returns whether it was called."""
        ready, _, _ = select.select([self._reader], [], [], max(seconds, 0))
        if ready:
            os.read(self._reader, 65536)
        return bool(ready)


MIN_PAUSE: Final = timedelta(milliseconds=10)
"""Minimum time between two rounds: batches bursts of changes, and keeps a bug from spinning."""

STANDBY: Final = timedelta(seconds=1)
"""Poll interval of a controller that is not the leader, or cannot read the cluster yet."""

UNREACHABLE_PAUSE: Final = timedelta(seconds=2)
"""Maximum wait while a node is out of service: the end of its pods does not wake the loop."""


class ControllerLoop:
    """Runs reconciliation rounds until it is stopped."""

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
        """Create the loop. A round reconciles ``nodes``, then ``jobs``.

        Args:
            nodes: reconciler of nodes.
            jobs: reconciler of jobs; None if no job is restarted.
            leadership: rounds run only while it is held.
            is_ready: rounds run only after the cluster can be read.
            metrics: counts rounds, and reports whether a node is out of service.
            progress: records finished rounds.
            wake: set from any thread to request a round.
            clock: source of the time.

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
        """Stop after the current round. May be called from any thread and from a signal handler."""
        self._is_stopped = True
        self._wake.set()

    def run(self) -> None:
        """Run rounds until ``stop`` is called.

        Raises:
            StorageFull: state cannot be recorded, so no action is allowed.
            StateDamaged: state cannot be recorded until a restart has restored it.

        """
        while not self._is_stopped:
            wake_at = self._round(self._clock.now())
            time.sleep(MIN_PAUSE.total_seconds())
            self._wake.wait((wake_at - self._clock.now()).total_seconds())

    def _round(self, began: datetime) -> datetime:
        if not self._is_ready() or not self._leadership.is_held():
            self._progress.finished()
            if not self._leadership.is_held():
                self._progress.was_read()  # a standby need not read it
            return began + STANDBY
        wake_at = self._nodes.step()
        if self._jobs is not None:
            wake_at = min(wake_at, self._jobs.step())
        ended = self._clock.now()
        self._metrics.round_made(ended - began)
        self._progress.finished()
        return min(wake_at, ended + UNREACHABLE_PAUSE) if self._metrics.is_busy() else wake_at
