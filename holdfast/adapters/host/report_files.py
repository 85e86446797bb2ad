"""Reports and heartbeats of an agent in two files, for programs on the same machine."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.kit.bounded_files import read_bounded
from holdfast.kit.files import open_lock, storage_error, write_atomically, write_in_place
from holdfast.kit.serial import parse_value, to_plain
from holdfast.model.errors import ConfigError
from holdfast.model.report import REPORT_LIMIT, NodeReport

LOCK: Final = "agent.lock"

_TIMEOUT_S: Final = 2.0
"""Time to wait for a terminating agent to release its directory."""


@contextmanager
def sole_agent(directory: Path) -> Iterator[None]:
    """Lock an existing report directory; the kernel releases the lock when this process exits.

    The lock is on a file of its own: everybody may open the directory, and lock it.

    Raises:
        ConfigError: another agent holds the lock, and each would overwrite the other's state; or
            the lock file cannot be used.

    """
    path = directory / LOCK
    try:
        fd = open_lock(path, is_local=True)
    except OSError as error:
        raise ConfigError(f"report_dir: cannot lock {path}: {error.strerror}") from error
    try:
        deadline = time.monotonic() + _TIMEOUT_S
        while not _is_free(fd):
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"report_dir: another agent reports to {directory}; stop it, or "
                    "choose another directory with --report-dir"
                )
            time.sleep(0.05)
        yield
    finally:
        os.close(fd)


def _is_free(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class ReportFiles:
    """``ReportSink`` that writes ``report.json`` and ``heartbeat`` in one directory.

    The report is replaced by renaming, so that a watch for IN_MOVED_TO sees each new one. The
    heartbeat, ``<boot id> <sequence>`` and a newline, is written in place and does not
    trigger it.
    """

    def __init__(self, directory: Path) -> None:
        """Use ``directory``, which is created if missing.

        Raises:
            ConfigError: the directory cannot be created.

        """
        self._report = directory / "report.json"
        self._heartbeat = directory / "heartbeat"
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write reports to {directory}: {error.strerror}") from error

    def last(self) -> NodeReport | None:
        """See ``ReportSink.last``; returns None for an invalid report."""
        try:
            return parse_value(NodeReport, read_bounded(self._report, REPORT_LIMIT))
        except (OSError, ValueError):
            return None

    def publish(self, report: NodeReport) -> None:
        """See ``ReportSink.publish``."""
        try:
            write_atomically(self._report, json.dumps(to_plain(report)) + "\n")
        except OSError as error:
            raise storage_error(error, self._report) from error

    def heartbeat(self, boot_id: str, sequence: int) -> None:
        """See ``ReportSink.heartbeat``."""
        try:
            write_in_place(self._heartbeat, f"{boot_id} {sequence}\n")
        except OSError as error:
            raise storage_error(error, self._heartbeat) from error
