"""Reads the reports of all agents from the directory that they share with the controller."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.kit.bounded_files import parse_json, read_bounded
from holdfast.kit.serial import checked_value
from holdfast.model.errors import BackendError
from holdfast.model.report import REPORT_LIMIT, NodeReport

_SUFFIX: Final = ".json"
_FRESH: Final = timedelta(minutes=1)
"""Maximum age at which the time of a file counts, which is that of its server; later, only the
clock of this host counts."""

_SHOWN_CHARS: Final = 64


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
    content: bytes | None
    """None if it cannot be read."""

    received: ReceivedReport | None
    """The last valid report of the node; None if there was none yet."""

    problem: str = ""
    """Why the file is not a valid report, and is skipped; empty if it is one."""


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

    def received(self) -> Mapping[str, ReceivedReport]:
        """Return the reports of the last look, by node name."""
        return {
            name: file.received for name, file in self._files.items() if file.received is not None
        }

    def skipped(self) -> Mapping[str, str]:
        """Return the files that are not valid reports, by node name, each with the reason."""
        return {
            name: f"{self._folder / name}{_SUFFIX}: {file.problem}"
            for name, file in self._files.items()
            if file.problem
        }

    def forget(self, node: str) -> None:
        """Delete the report of a node that is gone, or a verdict on it."""
        try:
            (self._folder / f"{node}{_SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            raise BackendError(f"cannot remove the report of {node}: {error.strerror}") from error

    def _look_at(
        self, name: str, entry: os.DirEntry[str], before: _File | None, now: datetime
    ) -> _File | None:
        """Return the state of a file; one that is not a valid report changes no earlier one."""
        known = None if before is None else before.received
        mark = (0, 0, 0)
        try:
            status = entry.stat(follow_symlinks=False)
            mark = (status.st_ino, status.st_mtime_ns, status.st_size)
            if before is not None and before.mark == mark:
                return before
            content = read_bounded(entry.path, REPORT_LIMIT)
        except FileNotFoundError:
            return None
        except OSError as error:  # affects one node only
            return _File(
                mark=mark, content=None, received=known, problem=error.strerror or str(error)
            )
        at = _first(status.st_mtime, now) if before is None else now
        if before is not None and before.content == content:
            received = known if known is None or before.problem else replace(known, at=at)
            return replace(before, mark=mark, received=received)
        try:
            received = _parsed(name, content, at)
        except ValueError as error:
            return _File(mark=mark, content=content, received=known, problem=str(error))
        return _File(mark=mark, content=content, received=received)


def _first(mtime: float, now: datetime) -> datetime | None:
    """Return the heartbeat time of a file that is read for the first time; None if it is old."""
    age = timedelta(seconds=now.timestamp() - mtime)
    return min(now, now - age) if abs(age) < _FRESH else None


def _parsed(name: str, content: bytes, at: datetime | None) -> ReceivedReport:
    """Return the report in a file.

    Raises:
        ValueError: it is not a report of the node ``name``.

    """
    plain = parse_json(content)
    machine = plain.get("machine") if isinstance(plain, dict) else None
    if not isinstance(machine, str) or "#" in machine:
        raise ValueError("not a report of an agent: machine is missing or is not an ID")
    report = checked_value(NodeReport, plain.get("report"))
    if report.node != name:
        raise ValueError(f"a report of the node {report.node[:_SHOWN_CHARS]}")
    return ReceivedReport(report=report, machine=machine, at=at)
