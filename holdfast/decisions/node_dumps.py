"""State of a node in the output of the command that dumps stacks: see ``stack_dumps``. Pure."""

import re
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.kernel_lines import LONGEST_UPTIME_S, NodeKernelLog, kept_lines, line_of
from holdfast.decisions.rank_accelerators import Accelerator, device_of_row

_KERNEL: Final = "\n== kernel "
_GPUS: Final = "\n== gpus"
_UNREAD: Final = "unread"
_UPTIME: Final = re.compile(r"[0-9]{1,9}\.[0-9]{1,6}")
_ROWS_LIMIT: Final = 64


def split_state(text: str) -> tuple[str, str]:
    """Return the dumps of processes and the state of the node, which is empty if it was cut off.

    Arguments of processes may contain any text, so that the last heading counts.
    """
    dumps, heading, state = text.rpartition(_KERNEL)
    return (dumps, state) if heading else (text, "")


def kernel_log_of(state: str, node: str, now: datetime) -> NodeKernelLog:
    """Return the kernel log of a node, and what could not be read.

    Args:
        state: second part of the output.
        node: name of the node.
        now: time at which it was printed.

    """
    kernel, _, gpus = state.partition(_GPUS)
    heading, *records = kernel.splitlines() or [""]
    uptime = _UPTIME.fullmatch(heading.strip())
    notes = [] if uptime else ["/dev/kmsg could not be read"]
    if gpus.partition("\n")[0].strip() == _UNREAD:
        notes.append("the accelerators were not read in time")
    uptime_s = min(float(uptime[0]), LONGEST_UPTIME_S) if uptime else 0.0
    booted_at = now - timedelta(seconds=uptime_s)
    lines = [line_of(record, booted_at) for record in records] if uptime else []
    kept = kept_lines(one for one in lines if one is not None)
    return NodeKernelLog(node=node, lines=kept, note="; ".join(notes))


def devices_of(state: str) -> tuple[Accelerator, ...]:
    """Return the devices of a node by the second part of the output."""
    _, _, gpus = state.partition(_GPUS)
    rows = [device_of_row(row) for row in gpus.splitlines()[1:][:_ROWS_LIMIT]]
    return tuple(row for row in rows if row is not None)
