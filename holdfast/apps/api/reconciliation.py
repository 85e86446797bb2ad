"""Threads that run the reconciliation loops of the server."""

import os
import signal
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

from holdfast.apps.clock import SystemClock

_LONGEST_PAUSE_S: Final = 60.0
"""Seconds between two rounds at most: a change that wakes none is backed up by then."""


class Reconciler(Protocol):
    """Loop that ``ReconciliationThread`` runs."""

    def step(self) -> datetime:
        """Run one round; return the time of the next."""
        ...

    def wake(self, name: str) -> None:
        """Reconcile a cluster at once."""
        ...


class ReconciliationThread:
    """Runs a reconciler in a separate thread until it is closed.

    Args:
        reconciler: of created clusters, or of their policies.
        back_up: backs up what has changed; returns the seconds after which to call it again.

    """

    def __init__(self, reconciler: Reconciler, back_up: Callable[[], float]) -> None:
        self._reconciler = reconciler
        self._back_up = back_up
        self._is_over = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clusters", daemon=True)

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def wake(self, cluster: str) -> None:
        """Reconcile a cluster at once."""
        self._reconciler.wake(cluster)
        self._woken.set()

    def close(self) -> None:
        """Stop the loop; remaining work is done after the next start."""
        self._is_over = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._woken.clear()
                wake_at = self._reconciler.step()
                pause = (wake_at - SystemClock().now()).total_seconds()
                self._woken.wait(max(0.01, min(pause, self._back_up(), _LONGEST_PAUSE_S)))
        finally:
            if not self._is_over:  # a bug: a server without its loop must not look healthy
                os.kill(os.getpid(), signal.SIGTERM)
