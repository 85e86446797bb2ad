"""Lines of the kernel logs of a hung job's nodes: which are kept, within bounds. Pure.

They are records of ``/dev/kmsg``, ``PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;MESSAGE``, in which the
kernel escapes all that is not printable ASCII (Linux, Documentation/ABI/testing/dev-kmsg).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.kernel_causes import cause_of_line
from holdfast.kit.masking import masked_text

LINES: Final = 20
"""Maximum number of lines of a node. A half of them is kept for those with a known cause."""

CHARS: Final = 300
"""Maximum length of a line."""

WARNING: Final = 4
"""Level of a warning; worse ones are lower. See syslog(3)."""

LONGEST_UPTIME_S: Final = 20 * 365 * 86_400
"""Longest time since the boot that counts as valid."""

_KERN, _USER = 0, 1
_EARLIER: Final = timedelta(minutes=1)
"""Time before the last step that counts, too: a rank may report a step after its device has failed,
and the kernel's clock is not corrected by NTP."""

_IN_CGROUP: Final = "Memory cgroup out of memory"
"""How the message about an OOM kill begins if a control group has reached its limit (Linux,
mm/oom_kill.c)."""

_RECORD: Final = re.compile(r"(\d{1,6}),\d{1,20},(\d{1,20}),[^;\n]{0,200};([^\n]{0,8192})")
_UNPRINTABLE: Final = re.compile(r"[^ -~]")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """One record of a kernel log."""

    at: datetime
    """Time at which it was logged, by the clock of its node."""

    text: str
    is_kernel: bool = True
    """False if a program wrote it to ``/dev/kmsg``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKernelLog:
    """What is kept of the kernel log of a node."""

    node: str
    lines: tuple[KernelLine, ...] = ()
    """Oldest first."""

    note: str = ""
    """What of the log and of the accelerators could not be read; empty if all was."""


def line_of(record: str, booted_at: datetime) -> KernelLine | None:
    """Return a record that is a warning or worse, or has a known cause; None for all others.

    Args:
        record: as read from ``/dev/kmsg``.
        booted_at: time at which the node was booted.

    """
    found = _RECORD.match(record)
    if found is None:
        return None
    priority, text = int(found[1]), _bounded(found[3])
    facility, level = priority >> 3, priority & 7
    is_kept = level <= WARNING or cause_of_line(text) is not None
    if facility not in (_KERN, _USER) or not text or not is_kept:
        return None
    uptime_s = int(found[2]) / 1_000_000
    if uptime_s > LONGEST_UPTIME_S:
        return None
    at = booted_at + timedelta(seconds=uptime_s)
    return KernelLine(at=at, text=text, is_kernel=facility == _KERN)


def concerns_job(line: KernelLine, oom_kills: int | None) -> bool:
    """Return False for an OOM kill at the memory limit of others, such as of another container.

    Args:
        line: a line of the kernel log.
        oom_kills: number of OOM kills in the control group of the job's processes; None if unknown.

    """
    return oom_kills != 0 or not line.text.startswith(_IN_CGROUP)


def kept_lines(lines: Iterable[KernelLine], limit: int = LINES) -> tuple[KernelLine, ...]:
    """Return the newest lines, and of the older ones those with a known cause, oldest first."""
    ordered = sorted(lines, key=lambda one: one.at)
    causes = [at for at, one in enumerate(ordered) if cause_of_line(one.text) is not None]
    chosen = {*causes[len(causes) - min(len(causes), limit // 2) :]}
    for at in range(len(ordered) - 1, -1, -1):
        if len(chosen) >= limit:
            break
        chosen.add(at)
    kept = (ordered[at] for at in sorted(chosen))
    return tuple(replace(one, text=_bounded(one.text)) for one in kept)


def since_last_step(
    logs: Iterable[NodeKernelLog], since: datetime | None
) -> tuple[NodeKernelLog, ...]:
    """Return one log of each node, within bounds, without lines older than the last step.

    Args:
        logs: those of one node may be several, as of pods that share it.
        since: time of the last step, or of the start of the attempt; None if unknown.

    """
    merged: dict[str, NodeKernelLog] = {}
    for one in logs:
        known = merged.setdefault(one.node, one)
        if known is not one:
            lines = dict.fromkeys((*known.lines, *one.lines))
            note = known.note and one.note
            merged[one.node] = replace(known, lines=tuple(lines), note=note)
    earliest = None if since is None else since - _EARLIER
    return tuple(
        replace(
            one,
            lines=kept_lines(line for line in one.lines if earliest is None or line.at >= earliest),
            note=_bounded(one.note),
        )
        for one in merged.values()
    )


def fewer_lines(logs: Sequence[NodeKernelLog], limit: int) -> tuple[NodeKernelLog, ...]:
    """Return logs of at most ``limit`` lines each; no logs if it is 0."""
    if limit == 0:
        return ()
    return tuple(replace(one, lines=kept_lines(one.lines, limit)) for one in logs)


def _bounded(text: str) -> str:
    return masked_text(_UNPRINTABLE.sub("?", text[: 4 * CHARS])).strip()[:CHARS]
