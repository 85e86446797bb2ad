"""Reads the warnings in the kernel log of a machine, as evidence of a hang."""

import os
import stat
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.control_groups import oom_kills
from holdfast.adapters.host.kmsg import read_record
from holdfast.decisions.kernel_lines import (
    KernelLine,
    NodeKernelLog,
    concerns_job,
    kept_lines,
    line_of,
)

DEVICE: Final = Path("/dev/kmsg")
_FILE_BYTES: Final = 1 << 22
_LIMIT_S: Final = 2.0
"""Time of reading: a program may write faster than this."""


def read_warnings(node: str, logs: Sequence[Path] = (DEVICE,)) -> NodeKernelLog:
    """Return the warnings and worse of this boot, within bounds; never blocks.

    A log that cannot be read is no error: most users and containers may not read it. This process
    must be in the control group of the job's processes, or in one above it.

    Args:
        node: name of the node.
        logs: the device, and files with such records.

    """
    lines: list[KernelLine] = []
    notes: list[str] = []
    booted_at = datetime.now(UTC) - timedelta(seconds=time.monotonic())
    kills = oom_kills()
    for path in logs:
        try:
            found = (line_of(record, booted_at) for record in _records(path))
            lines += kept_lines(one for one in found if one and concerns_job(one, kills))
        except OSError as error:
            notes.append(f"{path} could not be read: {error.strerror}")
    return NodeKernelLog(node=node, lines=kept_lines(lines), note="; ".join(notes))


def _records(path: Path) -> Iterator[str]:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISCHR(os.fstat(fd).st_mode):
            size = os.fstat(fd).st_size
            text = os.pread(fd, _FILE_BYTES, max(0, size - _FILE_BYTES))
            yield from text.decode("ascii", "replace").splitlines()
            return
        end = time.monotonic() + _LIMIT_S
        while time.monotonic() < end and (record := read_record(fd)):
            yield record.decode("ascii", "replace")
    finally:
        os.close(fd)
