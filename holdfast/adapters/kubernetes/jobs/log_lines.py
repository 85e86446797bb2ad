"""Parser of a pod log stream that yields each line once across reconnects: pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

LINE_LIMIT: Final = 4096
"""Maximum length of a line in bytes; the rest is discarded."""

_STAMP_BYTES: Final = 40
_STAMP: Final = re.compile(
    r"(2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ", re.ASCII
)
_CURSOR: Final = re.compile(r"(\S{20,40} )(\d{1,9})", re.ASCII)
_SET_BACK: Final = timedelta(seconds=1)
"""Upper bound of how far lines of standard output and standard error are out of order."""


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """Time at which a line was written, by the clock of its node."""

    second: datetime
    nanosecond: int


@dataclass(frozen=True, slots=True)
class PodLogLine:
    """Line of a log."""

    stamp: Stamp
    text: str


class Splitter:
    """Splits the bytes of one response into lines. Lines without a timestamp are not log lines."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        """Discard what exceeds ``limit`` bytes of a line."""
        self._limit = limit + _STAMP_BYTES
        self._rest = bytearray()
        self.has_foreign = False
        """Whether a line had no timestamp: the kubelet's message why it cannot read the log."""

        self.has_lines = False

    def lines(self, piece: bytes) -> Iterator[PodLogLine]:
        """Yield the lines that are complete with this piece."""
        *ended, rest = piece.split(b"\n")
        for one in ended:
            whole = bytes(self._rest) + one
            self._rest.clear()
            line = _line(whole[: self._limit])
            if line is not None:
                self.has_lines = True
                yield line
            elif whole:
                self.has_foreign = True
        self._rest += rest[: max(0, self._limit - len(self._rest))]


class Position:
    """Read position in a log, over responses that each begin within a second already read."""

    def __init__(self, cursor: str = "") -> None:
        """Continue at a ``cursor`` of a position; one that cannot be parsed is the beginning."""
        match = _CURSOR.fullmatch(cursor)
        stamp = _stamp(match[1]) if match is not None else None
        self._at = stamp[0] if stamp is not None else None
        self._count = int(match[2]) if match is not None and stamp is not None else 0
        """Number of lines with this timestamp that were read."""

        self._begin: Stamp | None = None
        self._to_skip = 0

    @property
    def since(self) -> datetime | None:
        """Time to read from; None for the whole log."""
        return self._at.second if self._at is not None else None

    @property
    def cursor(self) -> str:
        """The position as text; empty at the beginning of the log."""
        if self._at is None:
            return ""
        second = self._at.second.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{second}.{self._at.nanosecond:09}Z {self._count}"

    def opened(self) -> None:
        """Begin a new response."""
        self._begin, self._to_skip = self._at, self._count

    def fresh(self, lines: Sequence[PodLogLine]) -> list[PodLogLine]:
        """Return the lines not read before; only the beginning of a response can repeat lines."""
        old = 0
        for line in lines:
            if not self._is_old(line.stamp):
                self._begin = None
                break
            old += 1
        return list(lines[old:])

    def read(self, lines: Sequence[PodLogLine]) -> None:
        """Advance the position past lines that were processed."""
        for line in lines:
            at = self._at
            if at is None or line.stamp > at or at.second - line.stamp.second > _SET_BACK:
                self._at, self._count = line.stamp, 1
            elif line.stamp == at:
                self._count += 1

    def _is_old(self, stamp: Stamp) -> bool:
        if self._begin is None or stamp > self._begin:
            return False
        if stamp == self._begin:
            self._to_skip -= 1
            return self._to_skip >= 0
        return True


def _line(whole: bytes) -> PodLogLine | None:
    text = whole.decode(errors="replace")
    found = _stamp(text)
    if found is None:
        return None
    return PodLogLine(found[0], text[found[1] :].removesuffix("\r"))


def _stamp(text: str) -> tuple[Stamp, int] | None:
    """Return the timestamp at the beginning of a line, and its length with the blank."""
    match = _STAMP.match(text)
    if match is None:
        return None
    second, fraction, zone = match.groups()
    try:
        at = datetime.fromisoformat(second + zone.replace("Z", "+00:00"))
    except ValueError:
        return None
    return Stamp(at, int((fraction or "0").ljust(9, "0"))), match.end()
