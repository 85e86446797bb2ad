"""Starts the process that examines GPU and CPU of a straggler."""

import sys
from collections.abc import Mapping
from typing import Final

from holdfast.kit.printed_value import PrintedValue

_LIMIT_S: Final = 15.0
"""It takes 5 s of samples, and up to 4 s more if the driver is slow; the rest is for its start on a
busy machine."""


def examination(rank: int, processes: Mapping[int, int]) -> PrintedValue[str]:
    """Return what will be found; an empty text: nothing slows the rank down, as far as is known.

    Args:
        rank: the straggler.
        processes: process of each rank of its node.

    Raises:
        OSError: the process cannot be started.

    """
    ranks = [f"{one}:{pid}" for one, pid in processes.items()]
    module = "holdfast.adapters.host.rank_slowdowns"
    command = (sys.executable, "-m", module, str(rank), *ranks)
    return PrintedValue(str, command, limit_s=_LIMIT_S)
