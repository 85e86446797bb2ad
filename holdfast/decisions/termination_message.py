"""Termination message of the init container that verifies checkpoints: text, then records. Pure."""

from collections.abc import Iterable
from typing import Final

from holdfast.decisions.set_aside_records import RECORD_LIMIT, parse_record, record_of
from holdfast.model.set_aside import SetAside

MESSAGE_LIMIT: Final = 4096
"""Maximum length in bytes of a termination message, by the kubelet."""

_RECORD: Final = "set aside: "
"""Beginning of the line with the record of a moved checkpoint, as JSON."""

_RECORDS_LIMIT: Final = RECORD_LIMIT
"""Bytes for all records, so that the text has room: a sentence takes about 200."""


def termination_message(lines: Iterable[str], moved: Iterable[SetAside]) -> bytes:
    """Return the message; records that exceed ``_RECORDS_LIMIT`` together are left out."""
    records: list[bytes] = []
    left = _RECORDS_LIMIT
    for one in moved:
        record = f"\n{_RECORD}{record_of(one)}".encode()
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
            moved.append(parse_record(line.removeprefix(_RECORD)))
        except ValueError:
            continue
    return tuple(line for line in lines if line.strip()), tuple(moved)
