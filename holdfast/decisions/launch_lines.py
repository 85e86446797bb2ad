"""Lines about hangs and stragglers that the coordinator of ``holdfast launch`` prints. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

HANG: Final = "HangSuspected"
STRAGGLER: Final = "StragglerFound"

PRINTED: Final = "holdfast: "
"""Beginning of each line that a launcher prints."""

_LINE: Final = re.compile(
    rf"{PRINTED}({HANG}|{STRAGGLER}): (round \d{{1,9}}: .{{1,5000}})", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchNotices:
    """Last notices of the launchers of an attempt, for people to read; empty if there is none."""

    hang: str = ""
    straggler: str = ""


def notice_line(kind: str, number: int, text: str) -> str:
    """Return a notice about the round ``number``; ``kind`` is ``HANG`` or ``STRAGGLER``."""
    return f"{kind}: round {number}: {text}"


def after_lines(notices: LaunchNotices, lines: Iterable[str]) -> LaunchNotices:
    """Return the last notices after more lines of a log."""
    for line in lines:
        found = _LINE.fullmatch(line) if line.startswith(PRINTED) else None
        if found is None:
            continue
        kind, text = found.groups()
        is_hang = kind == HANG
        notices = replace(notices, hang=text) if is_hang else replace(notices, straggler=text)
    return notices
