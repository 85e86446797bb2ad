"""Progress of the reconciliation loop, and the call that blocks it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, ParamSpec, TypeVar

from holdfast.adapters.telemetry.exposition import family
from holdfast.kit.systemd import notify_alive
from holdfast.kit.units import format_duration

DEADLINE: Final = timedelta(minutes=3)
"""Maximum time between two rounds: the loop waits for at most a minute, and a provider's call may
take longer."""

_POLL_S: Final = 5.0
_PAUSE_S: Final = 60.0

P = ParamSpec("P")
R = TypeVar("R")


class Progress:
    """Time of the last finished round, and the current call of the loop; thread-safe to read."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._finished_at = self._read_at = monotonic()
        self._call: tuple[str, float] | None = None

    def finished(self) -> None:
        """Record that a round has finished, or that this process is not the leader."""
        self._finished_at = self._monotonic()

    def was_read(self) -> None:
        """Record that the cluster was read, or that this process is not the leader."""
        self._read_at = self._monotonic()

    def tracked(self, what: str, call: Callable[P, R]) -> Callable[P, R]:
        """Return ``call``; while it runs, ``stalled`` names it: ``what`` and its first argument."""

        def tracked(*args: P.args, **kwargs: P.kwargs) -> R:
            subject = args[0] if args else ""
            name = subject if isinstance(subject, str) else getattr(subject, "name", "")
            with self._during(f"{what} {name}".rstrip()):
                return call(*args, **kwargs)

        return tracked

    def stalled(self) -> str:
        """Return since when no round has finished, and why; empty within ``DEADLINE``."""
        since = self._since(self._finished_at)
        if since <= DEADLINE:
            return ""
        call = self._call
        waits = "" if call is None else (
            f"; waiting for: {call[0]} (for {format_duration(self._since(call[1]))})"
        )  # fmt: skip
        return f"no reconciliation round has finished for {format_duration(since)}{waits}"

    def unread(self) -> str:
        """Return since when the cluster could not be read; empty within ``DEADLINE``."""
        since = self._since(self._read_at)
        if since <= DEADLINE:
            return ""
        return f"the cluster was last read {format_duration(since)} ago"

    def families(self) -> Iterator[str]:
        """Yield the metric families."""
        yield family(
            "holdfast_controller_last_round_seconds",
            "gauge",
            "Time since a reconciliation round last finished.",
            {(): self._monotonic() - self._finished_at},
        )

    @contextmanager
    def _during(self, what: str) -> Iterator[None]:
        before, self._call = self._call, (what, self._monotonic())
        try:
            yield
        finally:
            self._call = before

    def _since(self, at: float) -> timedelta:
        return timedelta(seconds=round(self._monotonic() - at))


class Watchdog:
    """Thread that reports a stalled loop, at once and then every minute.

    While the loop is not stalled, it notifies systemd, which otherwise restarts the controller.
    """

    def __init__(self, progress: Progress, report: Callable[[str], None]) -> None:
        """Start the thread; ``report`` takes the messages of ``Progress.stalled``."""
        self._progress = progress
        self._report = report
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        quiet_until = 0.0
        while not self._stopped.wait(_POLL_S):
            stalled = self._progress.stalled()
            if not stalled:
                notify_alive()
            elif time.monotonic() >= quiet_until:
                self._report(stalled)
                quiet_until = time.monotonic() + _PAUSE_S
