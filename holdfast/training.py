"""Reports of a training script to Holdfast; without Holdfast, all of them do nothing.

Standard library only. The functions append to ``$HOLDFAST_PROGRESS_FILE``, one line for each step:
the number of the step and, after a space, its loss.
"""

import math
import os
from functools import cache
from typing import SupportsFloat


def step(number: int, *, loss: SupportsFloat | None = None) -> None:
    """Report a step that is done; all ranks may call it.

    The first report of an attempt is the step that it resumed from. Rank 0 writes each report, the
    other ranks only those of a loss that is NaN or infinite.

    Args:
        number: number of the step.
        loss: loss of the step, such as a tensor with one element. Reading it waits for the
            accelerator: pass it every few steps if that takes time.

    Raises:
        OSError: the file cannot be written.

    """
    path = os.environ.get("HOLDFAST_PROGRESS_FILE")
    if not path:
        return
    value = None if loss is None else float(loss)
    is_first = os.environ.get("RANK", "0") == "0"
    if not is_first and (value is None or math.isfinite(value)):
        return
    line = f"{number}\n" if value is None else f"{number} {value:.9g}\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(handle, line.encode("ascii"))  # one write: lines of ranks do not mix
    finally:
        os.close(handle)


def is_skipped(number: int) -> bool:
    """Return whether the batch of a step has to be skipped.

    Holdfast names the step at which the loss of an earlier attempt was not finite or spiked, and
    the one before, in ``$HOLDFAST_SKIP_STEPS`` if ``loss_action`` is ``skip``.
    """
    return number in _skipped(os.environ.get("HOLDFAST_SKIP_STEPS", ""))


@cache
def _skipped(text: str) -> frozenset[int]:
    return frozenset(int(part) for part in text.split(",") if part.strip().isdecimal())
