"""Reads and writes files in a thread: storage that hangs must not delay the renewal of leases."""

import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Final

from holdfast.kit.units import format_duration

_WAIT_S: Final = 0.1
"""Time to wait for a call, which takes milliseconds: much less than a lease."""

_REPORT_S: Final = 5.0
"""Time after which a call that has not ended is reported."""


class FileThread:
    """Runs one call at a time in a thread of its own.

    The caller must not use what a call uses while the thread is busy. The thread never ends before
    the process: the kernel would kill processes that were started in it, if they die with their
    parent.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._then: Callable[[], None] | None = None
        """What follows the call in the thread of the caller; None if there is none."""

        self._ended = threading.Event()
        self._ended.set()
        self._has_failed = self._is_reported = False
        self._began_at = 0.0
        self._thread: threading.Thread | None = None

    @property
    def native_id(self) -> int:
        """Return the thread, for its kernel stack; 0 if there is none."""
        return (self._thread.native_id or 0) if self._thread is not None else 0

    @property
    def is_busy(self) -> bool:
        """Return whether a call, or what follows it, has not ended."""
        return self._then is not None

    def run(self, call: Callable[[], None], then: Callable[[], None] = lambda: None) -> None:
        """Run a call, and continue; if the call takes long, ``finish`` continues later.

        Where no thread can be started, it runs in this one.

        Args:
            call: runs in the thread.
            then: runs in the thread of the caller once the call has ended; it may run another one.

        Raises:
            RuntimeError: the thread is busy, or see ``finish``.

        """
        if self.is_busy:
            raise RuntimeError("the thread is busy")
        self._then, self._began_at, self._is_reported = then, time.monotonic(), False
        if self._started():
            self._ended.clear()
            self._calls.put(call)
            self._ended.wait(_WAIT_S)
        else:
            call()
        self.finish()

    def finish(self) -> bool:
        """Continue after a call that has ended. Returns whether the thread is free.

        Raises:
            RuntimeError: the call raised an exception, which has been printed.

        """
        if self._then is None:
            return True
        has_ended = self._ended.is_set()
        self._report(has_ended=has_ended)
        if not has_ended:
            return False
        if self._has_failed:
            raise RuntimeError("a call that reads or writes files failed; see above")
        then, self._then = self._then, None
        then()
        return self._then is None

    def wait(self, limit_s: float) -> bool:
        """Wait until the call has ended, without continuing; return whether it has."""
        return self._ended.wait(limit_s)

    def _report(self, *, has_ended: bool) -> None:
        """Report storage that does not respond, once, and that it responds again."""
        elapsed_s = time.monotonic() - self._began_at
        if self._is_reported == has_ended and (has_ended or elapsed_s >= _REPORT_S):
            self._is_reported = True
            took = format_duration(timedelta(seconds=round(elapsed_s)))
            if has_ended:
                text = f"StorageResponded: after {took}"
            else:
                text = (
                    f"StorageNotResponding: files of the ranks not read or written for {took}; "
                    "the ranks continue, restarts wait: check the storage of --log-dir"
                )
            sys.stderr.write(f"holdfast: {text}\n")

    def _started(self) -> bool:
        """Return whether there is a thread."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="files", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _work(self) -> None:
        try:
            while True:
                self._calls.get()()
                self._ended.set()
        finally:
            self._has_failed = True
            self._ended.set()
