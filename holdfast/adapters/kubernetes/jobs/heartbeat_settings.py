"""Settings of hang detection by a heartbeat file: pure."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.decisions.hangs import HangLimits

DEFAULT_TIMEOUT: Final = timedelta(minutes=10)
"""Default timeout of a job; equal to the default of PyTorch's NCCL watchdog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Heartbeat settings of a job: path of the file and its timeouts."""

    path: str
    timeout: timedelta
    startup_timeout: timedelta | None = None
    """Limit from the start of the attempt to the first touch; None for no limit."""

    @property
    def limits(self) -> HangLimits:
        """Limits on the age of the file."""
        return HangLimits(startup=self.startup_timeout, pause=self.timeout)
