"""Reads the reports of all agents from the directory that they share with the controller."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.slurm.nodes.signatures import (
    VALID_FOR,
    CredentialsUnavailable,
    Trust,
    check_age,
    directory_problem,
    signed_at,
    split,
)
from holdfast.kit.bounded_files import parse_json, read_bounded
from holdfast.kit.serial import checked_value
from holdfast.model.errors import BackendError
from holdfast.model.hardware import DeviceGroup
from holdfast.model.report import REPORT_LIMIT, NodeReport

_SUFFIX: Final = ".json"
_VERDICT: Final = ".check"
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

    written_at: datetime | None = None
    """As ``at``, but not later than the time of the file: over NFS, a heartbeat may be noticed
    seconds after it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    mark: tuple[int, int, int]
    content: bytes | None
    """Without the signature; None if it cannot be read."""

    received: ReceivedReport | None
    """The last valid report of the node; None if there was none yet."""

    problem: str = ""
    """Why the file is not a valid report, and is skipped; empty if it is one."""

    credential: str = ""
    signed_at: datetime | None = None
    """When the report was signed."""


class Reports:
    """Reports in the directory; one ``refresh`` takes microseconds per node.

    A signature is verified when the file has another content or was signed again; heartbeats, which
    only set the time of the file, count while its signature is current.
    """

    def __init__(self, folder: Path, trust: Trust) -> None:
        self._folder = folder
        self._trust = trust
        self._unverified = ""
        self._files: dict[str, _File] = {}
        self._signed_at: dict[str, datetime] = {}
        """When the last valid report of each node was signed, also while its file is missing: an
        older one that appears later was put back by somebody else."""

    def refresh(self, now: datetime) -> bool:
        """Read the files that have changed. Returns whether any report is new.

        Raises:
            BackendError: the directory cannot be read, others may change it, or signatures cannot
                be verified now; earlier reports still hold.

        """
        before = self._files
        found: dict[str, _File] = {}
        self._unverified = ""
        try:
            if problem := directory_problem(self._folder, self._trust.users):
                raise BackendError(problem)
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    name = entry.name[: -len(_SUFFIX)]
                    if entry.name.endswith(_SUFFIX) and not name.startswith("."):
                        file = self._read_file(name, entry, before.get(name), now)
                        if file is not None:
                            found[name] = file
        except OSError as error:
            raise BackendError(f"cannot read {self._folder}: {error.strerror}") from error
        self._files = found
        if self._unverified:
            raise BackendError(f"cannot verify reports in {self._folder}: {self._unverified}")
        return before.keys() != found.keys() or any(
            file is not before[name] and file.content != before[name].content
            for name, file in found.items()
        )

    def received(self) -> Mapping[str, ReceivedReport]:
        """Return the reports of the last refresh, by node name."""
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

    def hardware(self, node: str) -> tuple[DeviceGroup, ...]:
        """Return the devices in the report of a node; empty if there is no valid one.

        They are parsed for the caller alone: of thousands of nodes, they would take 50 MB.
        """
        file = self._files.get(node)
        if file is None or file.content is None or file.received is None or file.problem:
            return ()
        return checked_value(NodeReport, parse_json(file.content)["report"]).hardware

    def forget(self, node: str) -> None:
        """Delete the report of a node that is gone, or a verdict on it."""
        try:
            (self._folder / f"{node}{_SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            raise BackendError(f"cannot remove the report of {node}: {error.strerror}") from error

    def _read_file(
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
            data = read_bounded(entry.path, REPORT_LIMIT)
        except FileNotFoundError:
            return None
        except OSError as error:  # affects one node only
            problem = error.strerror or str(error)
            return _File(mark=mark, content=None, received=known, problem=problem)
        written_at = _written_at(status.st_mtime, now)
        times = (written_at, written_at) if before is None else (now, written_at or now)
        try:
            return self._verified(name, data, mark, before, times, now)
        except CredentialsUnavailable as error:
            self._unverified = str(error)
            return before
        except ValueError as error:
            content, _ = split(data)
            return _File(mark=mark, content=content, received=known, problem=str(error))

    def _verified(
        self,
        name: str,
        data: bytes,
        mark: tuple[int, int, int],
        before: _File | None,
        times: tuple[datetime | None, datetime | None],
        now: datetime,
    ) -> _File:
        """Return the state of a file whose agent has signed it; ``times`` are those of its report.

        Raises:
            ValueError: it is not a valid report of that node.
            CredentialsUnavailable: that cannot be verified now.

        """
        content, credential = split(data)
        known = None if before is None or before.problem else before
        if known is not None and (known.content, known.credential) == (content, credential):
            is_current = known.signed_at is not None and now - known.signed_at <= VALID_FOR
            if is_current and known.received is not None:
                at, written_at = times
                received = replace(known.received, at=at, written_at=written_at)
                known = replace(known, received=received)
            return replace(known, mark=mark)
        if self._unverified:
            raise CredentialsUnavailable(self._unverified)
        at_signing = signed_at(content, credential, self._trust)
        if not is_verdict(name):
            check_age(at_signing, now)
        last = self._signed_at.get(name)
        if last is not None and at_signing < last:
            raise ValueError(
                "signature older than the last accepted report; report ignored (replay or restored"
                " file)"
            )
        received = _parsed(name, content, times)
        self._signed_at[name] = at_signing
        return _File(
            mark=mark,
            content=content,
            received=received,
            credential=credential,
            signed_at=at_signing,
        )


def verdict_name(node: str) -> str:
    """Return the name of a node's verdict among the reports."""
    return f"{node}{_VERDICT}"


def is_verdict(name: str) -> bool:
    """Whether a name is that of a verdict, which holds for a whole boot, and not of a report."""
    return name.endswith(_VERDICT)


def _written_at(mtime: float, now: datetime) -> datetime | None:
    """Return when a file was written; None if it is old, or its server's clock is wrong."""
    age = timedelta(seconds=now.timestamp() - mtime)
    return min(now, now - age) if abs(age) < _FRESH else None


def _parsed(
    name: str, content: bytes, times: tuple[datetime | None, datetime | None]
) -> ReceivedReport:
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
    at, written_at = times
    received = replace(report, hardware=())  # see Reports.hardware
    return ReceivedReport(report=received, machine=machine, at=at, written_at=written_at)
