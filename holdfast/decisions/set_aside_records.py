"""Records of moved checkpoints in one line of text, for messages and logs of pods. Pure."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from holdfast.decisions.notice_lines import PRINTED
from holdfast.kit.serial import parse_value, to_plain
from holdfast.kit.units import one_line
from holdfast.model.set_aside import SetAside

RECORD_LIMIT: Final = 3072
"""Maximum bytes of a record. A line of a log that the controller reads has 4096."""

LOGGED_LIMIT: Final = 64
"""Maximum number of records that are kept of one attempt; more than a directory ever has."""

_MOVED: Final = f"{PRINTED}CheckpointMoved: "
"""Beginning of the line with the record in a log."""

_PROBLEMS: Final = 2
_PROBLEM_CHARS: Final = 200
_ATTEMPTS: Final = 20


def record_of(one: SetAside) -> str:
    """Return the record as JSON in one line, with shortened texts."""
    return json.dumps(to_plain(_brief(one)), separators=(",", ":"))


def parse_record(text: str) -> SetAside:
    """Return the checkpoint of a record, which any program may have written.

    Raises:
        ValueError: the text is not a record.

    """
    return parse_value(SetAside, text)


def moved_line(one: SetAside) -> str:
    """Return the line of ``holdfast checkpoint guard`` in a log; empty if it would be too long."""
    record = record_of(one)
    return f"{_MOVED}{record}" if len(record.encode()) <= RECORD_LIMIT else ""


def after_moved_lines(known: tuple[SetAside, ...], lines: Iterable[str]) -> tuple[SetAside, ...]:
    """Return the moved checkpoints that are known after more lines of a log, oldest first."""
    for line in lines:
        if not line.startswith(_MOVED) or len(known) >= LOGGED_LIMIT:
            continue
        try:
            one = parse_record(line.removeprefix(_MOVED))
        except ValueError:
            continue
        known = known if one in known else (*known, one)
    return known


def _brief(one: SetAside) -> SetAside:
    return replace(
        one,
        why=one_line(one.why, _PROBLEM_CHARS),
        problems=tuple(one_line(each, _PROBLEM_CHARS) for each in one.problems[:_PROBLEMS]),
        attempts=one.attempts[-_ATTEMPTS:],
    )
