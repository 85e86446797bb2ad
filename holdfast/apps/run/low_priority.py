"""Limits this process to processor time that nobody else needs, and to a share of it."""

import atexit
import os
import signal
import time
from contextlib import suppress
from types import FrameType
from typing import Final

_SLICE_S: Final = 0.02
"""Processor time between two pauses."""


def lower_priority(share: float) -> None:
    """Run this process only when a processor is idle, and at most ``share`` of one.

    Args:
        share: limit of its processor time, as a part of one processor; 1 or more means no limit.

    """
    with suppress(OSError):  # not permitted in every container; the lowest niceness remains
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.nice(19)
    if share >= 1:
        return
    pause_s = _SLICE_S * (1 / share - 1)

    def pause(_: int, __: FrameType | None) -> None:
        time.sleep(pause_s)

    signal.signal(signal.SIGPROF, pause)
    signal.setitimer(signal.ITIMER_PROF, _SLICE_S, _SLICE_S)
    # At exit, Python restores the default action of the signal, which would end the process.
    atexit.register(signal.setitimer, signal.ITIMER_PROF, 0)
