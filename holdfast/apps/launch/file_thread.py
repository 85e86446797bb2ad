"""Reads and writes files in a thread: storage that hangs must not delay the renewal of leases."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

_WAIT_S: Final = 0.1
"""Time to wait for a call, which takes milliseconds: much less than a lease."""


class FileThread:
    """Runs one call at a time in a thread of its own.

    The caller must not use what a call uses until that has ended. The thread never ends before the
    process: the kernel would kill processes that were started in it, if they die with their parent.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._ended = threading.Event()
        self._ended.set()
        self._thread: threading.Thread | None = None

    @property
    def native_id(self) -> int:
        """Return the thread, for its kernel stack; 0 if there is none yet."""
        return (self._thread.native_id or 0) if self._thread is not None else 0

    def is_busy(self) -> bool:
        """Return whether a call has not ended.

        Raises:
            RuntimeError: the call raised an exception, which has been printed.

        """
        if self._ended.is_set():
            return False
        if self._thread is not None and not self._thread.is_alive():
            raise RuntimeError("a call that reads or writes files failed; see above")
        return True

    def run(self, call: Callable[[], None]) -> bool:
        """Run a call; return whether it ended in time. If not, it continues.

        While another one runs, it is not run. Where no thread can be started, it runs in this one.

        Raises:
            RuntimeError: see ``is_busy``.

        """
        if self.is_busy():
            return False
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="files", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                call()
                return True
            self._thread = thread
        self._ended.clear()
        self._calls.put(call)
        return self.wait(_WAIT_S)

    def wait(self, limit_s: float) -> bool:
        """Wait for the call; return whether it has ended.

        Raises:
            RuntimeError: see ``is_busy``.

        """
        self._ended.wait(limit_s)
        return not self.is_busy()

    def _work(self) -> None:
        while True:
            self._calls.get()()
            self._ended.set()
