"""Lines that Holdfast's programs print in a job for its controller, too. Pure.

The coordinator of ``holdfast launch`` reports hangs and stragglers, and ``holdfast checkpoint
guard`` what it found.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from holdfast.kit.units import one_line
from holdfast.model.names import Reason

HANG: Final = "HangSuspected"
STRAGGLER: Final = Reason.STRAGGLER_FOUND.value
CHECKPOINT: Final = "CheckpointChosen"

PRINTED: Final = "holdfast: "
"""Beginning of each line."""

_CHECKPOINT_LINES: Final = 8
"""Maximum number of lines of a guard that are kept."""

_LINE: Final = re.compile(
    rf"{PRINTED}(?:({HANG}|{STRAGGLER}): (round \d{{1,9}}: .{{1,5000}})"
    rf"|{CHECKPOINT}: (.{{1,5000}}))",
    re.ASCII,
)

_SLOW: Final = re.compile(
    r"round \d{1,9}: rank \d{1,9} on ([\w.-]{1,253})-\d{1,10}-[0-9a-f]{6} is slow: .*", re.ASCII
)
"""A straggler; its launcher is named by host name, process ID and a random number."""

_SHOWN_CHARS: Final = 1000
"""Maximum length of a notice; a message of an Event has 1024 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedNotices:
    """What was printed in an attempt, for people to read; empty if there is nothing."""

    hang: str = ""
    straggler: str = ""
    """Last ones."""

    checkpoints: tuple[str, ...] = ()
    """All different ones."""


def notice_line(kind: str, number: int, text: str) -> str:
    """Return a notice about the round ``number``; ``kind`` is ``HANG`` or ``STRAGGLER``."""
    return f"{kind}: round {number}: {text}"


def after_lines(notices: LoggedNotices, lines: Iterable[str]) -> LoggedNotices:
    """Return what is known after more lines of a log."""
    for line in lines:
        found = _LINE.fullmatch(line) if line.startswith(PRINTED) else None
        if found is None:
            continue
        kind, *texts = found.groups()
        text, checkpoint = (one_line(one or "", _SHOWN_CHARS) for one in texts)
        if kind == HANG:
            notices = replace(notices, hang=text)
        elif kind == STRAGGLER:
            notices = replace(notices, straggler=text)
        else:
            known = dict.fromkeys((*notices.checkpoints, checkpoint))
            notices = replace(notices, checkpoints=tuple(known)[:_CHECKPOINT_LINES])
    return notices


def slow_host(straggler: str) -> str:
    """Return the host name of the straggler that a notice names; empty if it names none."""
    found = _SLOW.fullmatch(straggler)
    return "" if found is None else found[1]


def checkpoint_line(text: str) -> str:
    """Return a line of ``holdfast checkpoint guard``."""
    return f"{PRINTED}{CHECKPOINT}: {text}"
