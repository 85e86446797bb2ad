"""Values in objects: times, JSON in annotations, and digests in names."""

import json
from datetime import UTC, datetime
from typing import Final

from holdfast.kit.serial import to_plain

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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


def digest(*parts: str) -> str:
    """Return a 16-character digest of these parts, the same in every process."""
    import hashlib  # noqa: PLC0415 - only writers name objects

    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
