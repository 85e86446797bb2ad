"""Termination message of the init container that verifies checkpoints: text, then records. Pure."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from holdfast.kit.serial import parse_value, to_plain
from holdfast.kit.units import one_line
from holdfast.model.set_aside import SetAside

MESSAGE_LIMIT: Final = 4096
"""Maximum length in bytes of a termination message, by the kubelet."""

_RECORD: Final = "set aside: "
"""Beginning of the line with the record of a moved checkpoint, as JSON."""

_RECORDS_LIMIT: Final = 3072
"""Bytes for all records, so that the text has room: a sentence takes about 200."""

_PROBLEMS: Final = 2
_PROBLEM_CHARS: Final = 200
_ATTEMPTS: Final = 20


def termination_message(lines: Iterable[str], moved: Iterable[SetAside]) -> bytes:
    """Return the message; records that exceed ``_RECORDS_LIMIT`` together are left out."""
    records: list[bytes] = []
    left = _RECORDS_LIMIT
    for one in moved:
        record = f"\n{_RECORD}{json.dumps(to_plain(_brief(one)), separators=(',', ':'))}".encode()
        if len(record) <= left:
            records.append(record)
            left -= len(record)
    tail = b"".join(records)
    text = "\n".join(line for line in lines if not line.startswith(_RECORD)).encode()
    return text[: MESSAGE_LIMIT - len(tail)] + tail


def parse_termination_message(text: str) -> tuple[tuple[str, ...], tuple[SetAside, ...]]:
    """Return the lines for people and the records of a message, which any program may write."""
    lines: list[str] = []
    moved: list[SetAside] = []
    for line in text.splitlines():
        if not line.startswith(_RECORD):
            lines.append(line)
            continue
        try:
            moved.append(parse_value(SetAside, line.removeprefix(_RECORD)))
        except ValueError:
            continue
    return tuple(line for line in lines if line.strip()), tuple(moved)


def _brief(one: SetAside) -> SetAside:
    return replace(
        one,
        why=one_line(one.why, _PROBLEM_CHARS),
        problems=tuple(one_line(each, _PROBLEM_CHARS) for each in one.problems[:_PROBLEMS]),
        attempts=one.attempts[-_ATTEMPTS:],
    )
