"""Parser of the output of ``fi_pingpong`` of libfabric, on the side of the client."""

import errno
import re
from dataclasses import dataclass
from typing import Final

from holdfast.kit.lacking import LACKING

_SIZE: Final = r"[0-9]{1,9}[kmg]?"
_NUMBER: Final = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_ROW: Final = re.compile(
    rf"^(?P<bytes>{_SIZE}) +(?P<sent>{_SIZE}) +(?P<back>=?{_SIZE}) +\S{{1,12}} +{_NUMBER}s +"
    rf"(?P<rate>{_NUMBER}) +(?P<us>{_NUMBER}) +{_NUMBER}\s*$",
    re.M,
)
_CHANGED: Final = re.compile(r"Error at iteration=[0-9]{1,9} size=[0-9]{1,12} byte=[0-9]{1,12}")
_SMALL: Final = ("64", "256", "1k")
_LAST: Final = "1m"
"""Largest of its default sizes."""

_NO_DATA: Final = 61
_REFUSED: Final = 111
"""Exit statuses that are the ``errno`` of the failure: ENODATA and ECONNREFUSED."""

_OF_HOST: Final = LACKING | {errno.EACCES, 126, 127}
"""Exit statuses of a tool that got no memory, descriptor or permission, or that ``env`` could not
execute. A device that does not respond never ends it so: it waits for that, or exits with ENODATA
(pingpong.c of libfabric)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Result of one run."""

    mb_per_s: float | None = None
    """Bandwidth with messages of 1 MiB; None if it did not get that far."""

    us: float | None = None
    """Microseconds for a message of 64 to 1,024 bytes, one way: the best of these sizes, as the
    first also includes the connection."""

    fault: str = ""
    """Defect between the two ends; empty if there is none."""

    doubt: str = ""
    """Why it is inconclusive; empty if it is conclusive."""

    is_of_host: bool = False
    """Whether its end is no evidence about the device; see ``is_of_host``."""


def read_pingpong(stdout: str, stderr: str, status: int) -> Exchange:
    """Parse the client's output; ``status`` is its exit status, negative if a signal ended it."""
    changed = _CHANGED.search(stdout + stderr)
    if changed is not None:
        return Exchange(fault=f"data corrupted: {changed[0]}")
    rows = {row["bytes"]: row for row in _ROW.finditer(stdout)}
    lost = [row for row in rows.values() if row["back"] not in (row["sent"], f"={row['sent']}")]
    if lost:
        row = lost[0]
        return Exchange(
            fault=f"{row['back']} of {row['sent']} messages of {row['bytes']} bytes returned"
        )
    if status:
        return Exchange(doubt=_why(stderr or stdout, status), is_of_host=is_of_host(status))
    if not rows.keys() >= {*_SMALL, _LAST}:
        return Exchange(doubt="its results are cut off" if rows else "no results in the output")
    return Exchange(
        mb_per_s=float(rows[_LAST]["rate"]), us=min(float(rows[size]["us"]) for size in _SMALL)
    )


def is_of_host(status: int) -> bool:
    """Return whether a signal ended the tool, or the host lacked what the tool needs."""
    return status < 0 or status in _OF_HOST


def is_refused(status: int) -> bool:
    """Return whether no server listened at the other end."""
    return status == _REFUSED


def _why(text: str, status: int) -> str:
    if status == _NO_DATA:
        return "libfabric finds no such provider or device"
    if status < 0:
        return f"terminated by signal {-status}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"exited with {status}: {lines[-1][:200] if lines else 'no output'}"
