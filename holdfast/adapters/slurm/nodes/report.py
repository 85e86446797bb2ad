"""Writes an agent's report to a file in a directory that the controller reads."""

import json
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.adapters.host.identity import firmware_instance_id
from holdfast.adapters.slurm.nodes.agent_settings import AgentSlurm
from holdfast.adapters.slurm.nodes.munge import munge_of
from holdfast.adapters.slurm.nodes.signatures import (
    SIGN_EVERY,
    Credentials,
    CredentialsUnavailable,
    signed,
)
from holdfast.kit.files import write_atomically
from holdfast.kit.serial import to_plain
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.model.report import NodeReport

Report = Callable[[str], None]

_RETRY_S: Final = 1.0
_CLOSING_S: Final = 1.0
_MACHINES: Final = ("sys/devices/virtual/dmi/id/product_uuid", "etc/machine-id")
"""Files that identify a machine outside EC2, also against an earlier one with the same name: the
first readable file counts."""


class SharedReport:
    """A ``ReportObserver`` that writes each report from its own thread.

    A network file system may hang; then only the newest report waits for it.
    """

    def __init__(
        self,
        settings: AgentSlurm,
        node: str,
        *,
        machine: str,
        timeout_s: float,
        report_problem: Report,
        credentials: Credentials,
    ) -> None:
        """Report on ``node`` from now on, until ``close``.

        Args:
            settings: report directory and heartbeat interval.
            node: name of the node in Slurm.
            machine: ID of the machine behind the node.
            timeout_s: seconds without a heartbeat until the agent counts as hung.
            report_problem: prints a message; called from this object's thread.
            credentials: sign each report.

        """
        self._path = settings.report_dir / f"{node}.json"
        self._heartbeat_s = settings.heartbeat.total_seconds()
        self._machine = machine
        self._timeout_s = timeout_s
        self._report_problem = report_problem
        self._credentials = credentials
        self._signed_at = 0.0
        self._mark: tuple[int, int, int] | None = None
        self._lock = threading.Condition()
        self._stopped = False
        self._report: NodeReport | None = None
        self._heartbeat_at = time.monotonic()
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)
        self._thread.start()

    def changed(self, before: NodeReport | None, report: NodeReport) -> None:  # noqa: ARG002
        """See ``ReportObserver.changed``."""
        self.heartbeat_sent()
        with self._lock:
            self._report = report
            self._lock.notify()

    def heartbeat_sent(self) -> None:
        """See ``ReportObserver.heartbeat_sent``.

        Raises:
            HoldfastError: a bug has ended the thread; an agent that cannot report must end, too.

        """
        if not self._thread.is_alive() and not self._stopped:
            raise HoldfastError(
                "the thread that writes the report for Slurm ended; see the log lines above"
            )
        self._heartbeat_at = time.monotonic()

    def close(self) -> None:
        """Stop writing. Waits only a moment for a file system that hangs."""
        with self._lock:
            self._stopped = True
            self._lock.notify()
        self._thread.join(_CLOSING_S)

    def _run(self) -> None:
        written: NodeReport | None = None
        while self._wait(written):
            report = self._report
            is_new = report is not written or self._is_aged() or self._is_damaged()
            if report is None or not (is_new or self._lives()):
                continue
            act = partial(self._write, report) if is_new else self._touch
            written = report if self._do(act) else None

    def _wait(self, written: NodeReport | None) -> bool:
        """Sleep until there is something to write. Returns whether to continue."""
        with self._lock:
            if not self._stopped and self._problem:
                self._lock.wait(_RETRY_S)
            elif not self._stopped and self._report is written:
                self._lock.wait(self._heartbeat_s)
            return not self._stopped

    def _lives(self) -> bool:
        """Whether the agent's loop runs, and not only this thread."""
        return time.monotonic() - self._heartbeat_at < self._timeout_s

    def _touch(self) -> None:
        os.utime(self._path, follow_symlinks=False)
        self._mark = self._present()

    def _present(self) -> tuple[int, int, int]:
        status = self._path.stat(follow_symlinks=False)
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _is_damaged(self) -> bool:
        """Whether the file has changed since it was last written: it must be written again."""
        try:
            return self._lives() and self._mark is not None and self._present() != self._mark
        except OSError:
            return False  # the next heartbeat reports it

    def _is_aged(self) -> bool:
        """Whether the report is to be signed again."""
        return time.monotonic() - self._signed_at >= SIGN_EVERY.total_seconds() and self._lives()

    def _write(self, report: NodeReport) -> None:
        content = {"machine": self._machine, "report": to_plain(report)}
        signing_at = time.monotonic()
        write_atomically(self._path, signed(json.dumps(content), self._credentials))
        self._signed_at = signing_at
        self._mark = self._present()

    def _do(self, act: Callable[[], None]) -> bool:
        """Call ``act``; return whether it succeeded. A failure is reported once."""
        try:
            act()
        except (OSError, CredentialsUnavailable) as error:
            why = error.strerror if isinstance(error, OSError) else error
            problem = f"cannot report to {self._path}: {why}; retrying"
            if problem != self._problem:
                self._report_problem(problem)
            self._problem = problem
            return False
        if self._problem:
            self._report_problem(f"reporting to {self._path} again")
        self._problem = ""
        return True


def machine_id(root: Path) -> str:
    """Return the ID of the machine below ``root``; empty if it has none."""
    if instance := firmware_instance_id(root):
        return instance
    return next(filter(None, (_line(root / path) for path in _MACHINES)), "")


def open_reporter(
    settings: AgentSlurm, node: str, *, root: Path, timeout_s: float, report_problem: Report
) -> SharedReport:
    """Report on ``node`` with these settings; see ``SharedReport``.

    Raises:
        ConfigError: no file can have that name, the directory does not exist, or the library of
            munge is not installed.

    """
    if "/" in node or node.startswith("."):
        raise ConfigError(f"node: {node!r} is not a valid name of a Slurm node; see: sinfo -N")
    if not settings.report_dir.is_dir():
        raise ConfigError(
            f"slurm.report_dir: {settings.report_dir} is not a directory; create it on the file"
            " system that the nodes share with the controller"
        )
    return SharedReport(
        settings,
        node,
        machine=machine_id(root),
        timeout_s=timeout_s,
        report_problem=report_problem,
        credentials=munge_of(None),
    )


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
