"""Waits until the memory of this node's accelerators is free, in another process."""

import subprocess
import sys
import time
from datetime import timedelta
from typing import Final

from holdfast.kit.processes import end_children

_DRIVER_S: Final = 5.0
"""Time for calls of the driver beyond the timeout."""

_END_S: Final = 30.0
"""Time after SIGKILL for the process to end: in a call of a driver that hangs, it does not."""

_NOT_CHECKED: Final = 2

_PROBLEMS: Final = {0: "", _NOT_CHECKED: "GPU memory was not checked"}
_IN_USE: Final = "GPU memory is still in use"


class AcceleratorWait:
    """One wait.

    Args:
        devices: value of CUDA_VISIBLE_DEVICES; empty: all GPUs.
        timeout: time after which the memory counts as free.

    """

    def __init__(self, devices: str, timeout: timedelta) -> None:
        module = "holdfast.adapters.host.accelerator_memory"
        options = (f"--timeout={timeout.total_seconds()}", f"--devices={devices}")
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *options],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
            )
        except OSError as error:
            sys.stderr.write(f"holdfast: cannot start {sys.executable}: {error.strerror}\n")
        self._since = time.monotonic()
        self._until = self._since + timeout.total_seconds() + _DRIVER_S

    @property
    def pid(self) -> int:
        """Return the process that waits; -1 if it could not be started."""
        return -1 if self._process is None else self._process.pid

    def seconds(self) -> float | None:
        """Return how long it took, and print why the memory may be in use; None while it lasts.

        ``is_running`` is true afterwards if SIGKILL did not end the process.
        """
        now = time.monotonic()
        status = _NOT_CHECKED if self._process is None else self._process.poll()
        if status is None:
            if now >= self._until and self._process is not None:
                self._process.kill()
            return None if now < self._until + _END_S else now - self._since
        if problem := _PROBLEMS.get(status, _IN_USE):
            sys.stderr.write(f"holdfast: {problem}; restarting anyway\n")
        return now - self._since

    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            end_children([self._process])
