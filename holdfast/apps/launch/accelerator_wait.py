"""Waits until the memory of this node's accelerators is free, in another process."""

import subprocess
import sys
import time
from datetime import timedelta
from typing import Final

_DRIVER_S: Final = 5.0
"""Time for calls of the driver beyond the timeout."""

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
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *options], stdin=subprocess.DEVNULL, stdout=sys.stderr
        )
        self._since = time.monotonic()
        self._until = self._since + timeout.total_seconds() + _DRIVER_S

    @property
    def pid(self) -> int:
        """Return the process that waits."""
        return self._process.pid

    def seconds(self) -> float | None:
        """Return how long it took, and print why the memory may be in use; None while it lasts."""
        now, status = time.monotonic(), self._process.poll()
        if status is None and now < self._until:
            return None
        if problem := _PROBLEMS.get(-1 if status is None else status, _IN_USE):
            sys.stderr.write(f"holdfast: {problem}; restarting anyway\n")
        self.close()
        return now - self._since

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
