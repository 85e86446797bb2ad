"""Parser of kernel logs in all forms: raw records of /dev/kmsg, dmesg, syslog.

``kernel_line`` removes the prefix of one line. ``KernelLog`` splits a stream of bytes into lines,
and lines into records. Both accept anything: binary garbage, lines without end, repeated prefixes;
their cost grows with the length of the input only.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

LONGEST_LINE: Final = 8192
"""Maximum number of bytes of a line that are read. The kernel's longest record in its escaped form
has as many (``CONSOLE_EXT_LOG_MAX`` in linux/printk.h was 8192, ``PRINTK_MESSAGE_MAX`` is 2048)."""

_BLANK: Final = " \t\r\n\f\v\0\ufeff"
_HOST: Final = r"[\w.%:-]{0,254}[\w.%-] "
_KERNEL: Final = rf"(?:{_HOST})?kernel(?:\[[0-9]{{1,7}}\])?(?:: ?| - - - )"
_FACILITY: Final = (
    "kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7]"  # dmesg(1) -x
)
_LEVEL: Final = "emerg|alert|crit|err|warn|notice|info|debug"
_TIME: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_PREFIX: Final = re.compile(
    rf"""[{re.escape(_BLANK)}]*(?:
    (?P<raw>(?P<priority>[0-9]{{1,6}}),[0-9]{{1,20}},(?P<microseconds>[0-9]{{1,20}}),
       [^;\n]{{0,200}};)
    |(?P<level><(?P<number>[0-9]{{1,3}})>)
    |(?P<words>(?P<facility>{_FACILITY})[ ]*:(?:{_LEVEL})[ ]*:)
    |(?P<uptime>\[[ ]*(?P<stamp_s>[+]?[0-9]{{1,12}}\.[0-9]{{1,9}})(?:[ ]+<[ ]*[0-9.]{{1,20}}>)?\])
    |(?P<ctime>\[(?P<text>\S{{1,12}}[ ]+\S{{1,12}}[ ]+[0-9]{{1,2}}[ ]{_TIME}[ ][0-9]{{4}})\])
    |(?P<caller>\[[ ]*[CT][0-9]{{1,7}}\])
    |(?P<iso>(?:1[ ])?(?:[A-Z][a-z]{{2}}[ ])?
       (?P<stamp>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]{_TIME}(?:[.,][0-9]{{1,9}})?
          (?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})?)
       (?:[ ](?:UTC|[A-Z]{{2,4}}T))?[ ](?P<iso_tag>{_KERNEL.replace(" ", "[ ]")})?)
    |(?P<syslog>(?P<month>[^\s\[\]<>:]{{1,12}})[ ]+(?P<day>[0-9]{{1,2}})[ ]
       (?P<clock>{_TIME})(?:[.,][0-9]{{1,9}})?[ ](?P<syslog_tag>{_KERNEL.replace(" ", "[ ]")})?)
    |(?P<tag>{_KERNEL.replace(" ", "[ ]")})
    |(?P<repeated>message[ ]repeated[ ][0-9]{{1,9}}[ ]times:[ ]\[)
    )""",
    re.VERBOSE,
)
_PROGRAM: Final = re.compile(r"[\w.%-]{1,255} [\w./@-]{1,255}\[[0-9]{1,7}\]: ")
_TERMINAL_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z])?")
_ESCAPED_BYTES: Final = re.compile(r"(?:\\x[0-9a-f]{2})+")
_RAW_RECORD: Final = re.compile(rb"[0-9]{1,6},[0-9]{1,20},[0-9]{1,20},[^;\n]{0,200};")

KERN: Final = 0  # syslog(3) facilities
USER: Final = 1
_OTHER: Final = 3

_LONGEST_UPTIME_S: Final = 10**10  # 300 years

_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_CLOCK_TOLERANCE: Final = timedelta(days=1)
"""Maximum time by which a syslog time may be ahead: it has no time zone, and clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """One record of the kernel, without prefix."""

    message: str
    at: datetime | None = None
    """Time at which it was logged, if the prefix has it."""

    since_boot: timedelta | None = None
    """Time at which it was logged by the kernel's own clock, if the prefix has it."""

    line_number: int = 0
    """Number of the line that completed it, counted from 1."""

    facility: int | None = None
    """``KERN`` or ``USER``; None if the prefix contains no facility."""


def kernel_line(line: str, now: datetime, number: int = 0) -> KernelLine | None:
    """Remove the prefixes of a line of a kernel log; None if the line is not the kernel's.

    A line without any known prefix is returned as it is: it may be the kernel's. Records that
    processes wrote to /dev/kmsg (facility *user*) are returned with that facility, those of system
    services (facility *daemon*) are not returned.

    Args:
        line: line of the log, with or without its newline.
        number: its number in the log, counted from 1.
        now: an aware time. Provides the year for syslog times, which have none, and the time zone
            for times without one.

    """
    text = line[:LONGEST_LINE]
    if "\x1b" in text:
        text = _TERMINAL_ESCAPE.sub("", text)
    at: datetime | None = None
    since_boot: timedelta | None = None
    start, end = 0, len(text)
    facility: int | None = None
    has_time_alone = False
    while (match := _PREFIX.match(text, start, end)) is not None:
        start = match.end()
        kind = match.lastgroup
        if not _is_of_kernel(match):
            return None
        facility = _facility(match) if facility is None else facility  # the outermost is certain
        if kind in ("raw", "uptime"):
            since_boot = _since_boot(match)
        if kind == "raw":
            text = _unescaped(text[start:end])
            start, end = 0, len(text)
        elif kind == "repeated":
            inner = text[start:end].rstrip(_BLANK)
            end = start + len(inner.removesuffix("]"))
        elif kind in ("iso", "syslog", "ctime"):
            at = _moment(match, now)
            has_time_alone = kind == "iso" and match["iso_tag"] is None
    message = text[start:end].strip(_BLANK)
    if has_time_alone and _PROGRAM.match(message):
        return None
    return KernelLine(
        message=message, at=at, since_boot=since_boot, line_number=number, facility=facility
    )


def _is_of_kernel(prefix: re.Match[str]) -> bool:
    if prefix.lastgroup == "syslog":
        return prefix["syslog_tag"] is not None
    return _facility(prefix) in (KERN, USER, None)


def _facility(prefix: re.Match[str]) -> int | None:
    match prefix.lastgroup:
        case "raw":
            return int(prefix["priority"]) >> 3
        case "level":
            return int(prefix["number"]) >> 3
        case "words":
            return {"kern": KERN, "user": USER}.get(prefix["facility"], _OTHER)
    return None


def _since_boot(prefix: re.Match[str]) -> timedelta | None:
    if prefix["microseconds"] is not None:
        seconds = int(prefix["microseconds"]) / 1_000_000
    elif prefix["stamp_s"].startswith("+"):  # dmesg -e: since the line before
        return None
    else:
        seconds = float(prefix["stamp_s"])
    return timedelta(seconds=seconds) if seconds < _LONGEST_UPTIME_S else None


def _unescaped(text: str) -> str:
    r"""Decode the escapes of /dev/kmsg: ``\x0a`` stands for the byte 10 of the UTF-8 text."""
    return _ESCAPED_BYTES.sub(
        lambda match: bytes.fromhex(match[0].replace("\\x", "")).decode(errors="replace"), text
    )


def _moment(prefix: re.Match[str], now: datetime) -> datetime | None:
    try:
        match prefix.lastgroup:
            case "iso":
                at = datetime.fromisoformat(prefix["stamp"].replace(",", "."))
            case "ctime":
                _, month, day, clock, year = prefix["text"].split()
                at = _on(int(year), month, day, clock)
            case _:
                return _nearest_before(now, prefix["month"], prefix["day"], prefix["clock"])
    except (KeyError, ValueError):
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=now.tzinfo)


def _nearest_before(now: datetime, month: str, day: str, clock: str) -> datetime | None:
    for year in range(now.year + 1, now.year - 9, -1):  # February 29 may be eight years back
        try:
            at = _on(year, month, day, clock).replace(tzinfo=now.tzinfo)
        except ValueError:
            continue
        if at <= now + _CLOCK_TOLERANCE:
            return at
    return None


def _on(year: int, month: str, day: str, clock: str) -> datetime:
    number = int(month[:-1]) if month.endswith("月") else _MONTHS[month]
    hour, minute, second = (int(part) for part in clock.split(":"))
    # A leap second is given as 60.
    return datetime(year, number, int(day), hour, minute, min(second, 59))  # noqa: DTZ001


class KernelLog:
    """Incremental reader of one kernel log.

    It keeps the state between lines: the start of an incomplete line, the format of the record
    before an indented line, and messages that the kernel wrote as one record and syslog as several.
    """

    def __init__(self, keywords: Iterable[str]) -> None:
        """Read the records that contain one of ``keywords``."""
        self._keywords = tuple(keyword.encode() for keyword in keywords)
        self._rest = b""
        self._is_raw = False
        self._opened = ""
        self.unread = 0
        """Number of bytes that were fed and belong to an incomplete line."""

        self.lines = 0
        """Number of complete lines that were fed."""

    def feed(self, data: bytes, now: datetime) -> list[KernelLine]:
        """Read the next bytes of the log; return the records that they complete."""
        end = data.rfind(b"\n") + 1
        if end == 0:
            self._rest = (self._rest + data[:LONGEST_LINE])[:LONGEST_LINE]
            self.unread += len(data)
            return []
        text = self._rest + data[:end]
        self._rest, self.unread = data[end : end + LONGEST_LINE], len(data) - end
        records: list[KernelLine] = []
        done = 0
        for start in self._matching_starts(text):
            self._pass(text, done, start)
            line = text[start : text.index(b"\n", start)]
            # Indented lines after a raw record are its dictionary: properties of its device.
            if not (line.startswith(b" ") and self._is_raw):
                records += self._records(line.decode(errors="replace"), self.lines + 1, now)
            done = start
        self._pass(text, done, len(text))
        return records

    def _matching_starts(self, text: bytes) -> list[int]:
        """Return the starts of the lines that contain a keyword.

        A search for each keyword in the whole text costs a tenth of one for all keywords line by
        line.
        """
        starts = set()
        for keyword in self._keywords:
            at = text.find(keyword)
            while at != -1:
                start = text.rfind(b"\n", 0, at) + 1
                if at - start < LONGEST_LINE:
                    starts.add(start)
                at = text.find(keyword, text.index(b"\n", at))
        return sorted(starts)

    def _pass(self, text: bytes, start: int, end: int) -> None:
        """Count the lines of a part of the text, and record the format of its last record."""
        self.lines += text.count(b"\n", start, end)
        while start < end:
            line = text.rfind(b"\n", 0, end - 1) + 1
            if not text.startswith(b" ", line):
                self._is_raw = _RAW_RECORD.match(text, line) is not None
                return
            end = line

    def close(self, now: datetime) -> list[KernelLine]:
        """Read a last line that has no newline as complete."""
        return self.feed(b"\n", now) if self.unread else []

    def _records(self, text: str, number: int, now: datetime) -> list[KernelLine]:
        line = kernel_line(text, now, number)
        if line is None or not line.message:
            return []
        if line.facility == USER:  # it must not become a part of the kernel's own record
            return [line]
        messages = self._joined(line.message)
        return (
            [line] if messages == [line.message] else [replace(line, message=m) for m in messages]
        )

    def _joined(self, message: str) -> list[str]:
        """Return the records that ``message`` completes, with it unless it leaves one open.

        When the driver cannot attach to a GPU it writes one record of two or three lines (osapi.c
        of NVIDIA's open-gpu-kernel-modules), and most syslog daemons split it.
        """
        opened, self._opened = self._opened, ""
        if opened and message.startswith(_CONTINUATIONS):
            message, opened = f"{opened}\n{message}", ""
        if message.startswith(_OPENING) and "off the bus" not in message:
            message, self._opened = "", message
        return [record for record in (opened, message) if record]


_OPENING: Final = "NVRM: The NVIDIA GPU "
_CONTINUATIONS: Final = (
    "NVRM: (PCI ID:",
    "NVRM: installed in this system",
    "NVRM: fallen off the bus",
    "NVRM: off the bus",
)
