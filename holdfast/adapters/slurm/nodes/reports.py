"""Reads the reports of all agents from the directory that they share with the controller."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.kit.serial import from_plain
from holdfast.model.errors import BackendError
from holdfast.model.report import NodeReport

_SUFFIX: Final = ".json"
_FRESH: Final = timedelta(minutes=1)
"""Maximum age at which the time of a file counts, which is that of its server; later, only the
clock of this host counts."""

_LARGEST: Final = 4 * 1024 * 1024  # bytes; a report with every fault there is has some 100 kB


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedReport:
    """An agent's report, and the time of its last heartbeat."""

    report: NodeReport
    machine: str
    """ID of the machine; empty if unknown."""

    at: datetime | None = None
    """Time of the last heartbeat; None if it was long before this process first read the file, and
    none has come since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    mark: tuple[int, int, int]
    content: bytes
    heard: ReceivedReport | None
    """None if it cannot be read."""


class Reports:
    """Reports in the directory; one ``look`` takes microseconds per node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _File] = {}

    def look(self, now: datetime) -> bool:
        """Read the files that have changed. Returns whether any report is new.

        Raises:
            BackendError: the directory cannot be read.

        """
        before = self._files
        found: dict[str, _File] = {}
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    name = entry.name[: -len(_SUFFIX)]
                    if entry.name.endswith(_SUFFIX) and not name.startswith("."):
                        file = self._look_at(name, entry, before.get(name), now)
                        if file is not None:
                            found[name] = file
        except OSError as error:
            raise BackendError(f"cannot read {self._folder}: {error.strerror}") from error
        self._files = found
        return before.keys() != found.keys() or any(
            file is not before[name] and file.content != before[name].content
            for name, file in found.items()
        )

    def heard(self) -> Mapping[str, ReceivedReport]:
        """Return the reports of the last look, by node name."""
        return {name: file.heard for name, file in self._files.items() if file.heard is not None}

    def unreadable(self) -> frozenset[str]:
        """Return nodes whose report cannot be read."""
        return frozenset(name for name, file in self._files.items() if file.heard is None)

    def forget(self, node: str) -> None:
        """Delete the report of a node that is gone, or a verdict on it."""
        try:
            (self._folder / f"{node}{_SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            raise BackendError(f"cannot remove the report of {node}: {error.strerror}") from error

    def _look_at(
        self, name: str, entry: os.DirEntry[str], before: _File | None, now: datetime
    ) -> _File | None:
        try:
            status = entry.stat()
            mark = (status.st_ino, status.st_mtime_ns, status.st_size)
            if before is not None and before.mark == mark:
                return before
            with open(entry.path, "rb") as file:
                content = file.read(_LARGEST)
        except FileNotFoundError:
            return None
        at = _first(status.st_mtime, now) if before is None else now
        if before is not None and before.content == content and before.heard is not None:
            heard = before.heard
            return _File(mark=mark, content=content, heard=_at(heard, at))
        return _File(mark=mark, content=content, heard=_read(name, content, at))


def _first(mtime: float, now: datetime) -> datetime | None:
    """Return the heartbeat time of a file that is read for the first time; None if it is old."""
    age = timedelta(seconds=now.timestamp() - mtime)
    return min(now, now - age) if abs(age) < _FRESH else None


def _at(heard: ReceivedReport, at: datetime | None) -> ReceivedReport:
    return ReceivedReport(report=heard.report, machine=heard.machine, at=at)


def _read(name: str, content: bytes, at: datetime | None) -> ReceivedReport | None:
    try:
        plain = json.loads(content)
        machine = plain["machine"]
        report = from_plain(NodeReport, plain["report"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_sound = isinstance(machine, str) and "#" not in machine and report.node == name
    return ReceivedReport(report=report, machine=machine, at=at) if is_sound else None
