"""Values in objects: times, JSON in annotations, digests in names, and values that are rejected."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from holdfast.kit.serial import from_plain, to_plain

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
"""Latest accepted time; later ones are mistakes, and adding a timeout could overflow."""

_EXCERPT_CHARS: Final = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A label or an annotation whose value is invalid, and which is ignored."""

    key: str
    value: str
    expected: str


def parse_time(text: object) -> datetime | None:
    """Parse a timestamp of the API server; None if ``text`` is not one."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def format_time(moment: datetime) -> str:
    """Format a time as the API server does: RFC 3339 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def compact_json(value: object) -> str:
    """Return a dataclass or a plain value as one line of JSON."""
    return json.dumps(to_plain(value), separators=(",", ":"))


def parse_json(kind: type[T], text: str) -> T:
    """Return a value of ``kind`` from JSON that ``compact_json`` or a user has written.

    Raises:
        ValueError: ``text`` is no such value, or has a time without a zone or outside of the years
            2000 to 2199.

    """
    try:
        value = from_plain(kind, json.loads(text))
    except (RecursionError, OverflowError) as error:
        raise ValueError(f"invalid {kind.__name__}: {error}") from error
    for time in _times(value):
        if time.tzinfo is None or not _EARLIEST <= time <= _LATEST:
            raise ValueError(
                f"invalid {kind.__name__}: {time} has no zone or is not in the years 2000 to 2199"
            )
    return value


def digest(*parts: str) -> str:
    """Return a 16-character digest of these parts, the same in every process."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def excerpt(value: str) -> str:
    """Return the first 100 characters of a value, for messages."""
    return value if len(value) <= _EXCERPT_CHARS else f"{value[:_EXCERPT_CHARS]}..."


def _times(value: Any) -> Iterator[datetime]:
    if isinstance(value, datetime):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _times(item)
    elif is_dataclass(value):
        for one in fields(value):
            yield from _times(getattr(value, one.name))
