"""Runs that were never run: their state is written by hand, for commands to read."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.lock import locked
from holdfast.adapters.local.machine import node_name
from holdfast.adapters.local.store import LocalStore, Submission
from holdfast.apps.main import run as run_process
from holdfast.kit.processes import start_time
from holdfast.kit.serial import to_plain
from holdfast.model.hardware import DeviceGroup
from holdfast.model.health import Fault, Finding, Remedy, Severity, Urgency
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import NodeRecord, Phase, Remediation
from holdfast.model.report import NodeReport

DEADLINE_S = 90
NOW = datetime.now(UTC)
COMMAND = ["python", "train.py", "--lr", "1e-3; echo"]
BOOT = "5cb9e2a4-0000-4000-8000-000000000000"
LINE = "NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error"


def machine(number: int) -> str:
    return f"i-{number:017x}"


def node(number: int) -> str:
    return node_name(machine(number))


def remediation(number: int, remedy: Remedy = Remedy.REPLACE) -> Remediation:
    return Remediation(
        incident_id=f"{node(number)}-20260102T030405.678",
        opened_at=NOW,
        condition=Condition.NVIDIA_TERMINATE,
        reason=Reason.XID_REPLACE,
        remedy=remedy,
        urgency=Urgency.IMMEDIATE,
    )


@dataclass(frozen=True)
class Called:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@contextlib.contextmanager
def program(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """``holdfast`` in a process of its own, which a test that fails does not leave behind."""
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        deadline = threading.Timer(DEADLINE_S, process.kill)
        deadline.start()
        try:
            yield process
            process.wait()
        finally:
            deadline.cancel()
            process.kill()


class WrittenRuns:
    """Writes runs into a home and calls commands that read it."""

    def __init__(self, home: Path, capfd) -> None:
        self.home = home
        self._capfd = capfd
        self._locks = contextlib.ExitStack()
        self._stores = contextlib.ExitStack()

    def end(self) -> None:
        """End every run, as if its Holdfast were killed."""
        self._locks.close()

    def close(self) -> None:
        self._locks.close()
        self._stores.close()

    def call(self, *argv: str) -> Called:
        self._capfd.readouterr()
        code = run_process(argv)
        out, err = self._capfd.readouterr()
        return Called(code, out, err)

    def add(
        self,
        name: str,
        *,
        nodes: tuple[int, ...] = (1, 2, 3),
        ranks: tuple[int, ...] = (1, 2),
        is_active: bool = True,
        started_at: datetime = NOW,
        **job: object,
    ) -> LocalStore:
        """A run whose job runs on ``ranks``; ``job`` are fields of its record."""
        run = RunDir(self.home / "runs" / name)
        run.create()
        run.checkpoints.mkdir()
        if is_active:
            self._locks.enter_context(locked(run))
        store = self._stores.enter_context(contextlib.closing(LocalStore(run.state, create=True)))
        submission = Submission(
            id=f"{name}-0123abcd",
            name=name,
            command=tuple(COMMAND),
            pid=os.getpid(),
            started_at=started_at,
            checkpoint_dir=str(run.checkpoints),
        )
        fields = {
            "phase": JobPhase.RUNNING,
            "phase_since": started_at,
            "attempt": 1,
            "started_at": started_at,
            "placement": tuple(node(number) for number in ranks),
            **job,
        }
        spec = JobSpec(name=name, nodes=max(1, len(ranks)))
        store.add_job(spec, JobRecord(**fields), submission)
        for number in nodes:
            since = datetime.now(UTC) - timedelta(days=5, minutes=9)
            record = NodeRecord(phase=Phase.SCHEDULABLE, phase_since=since)
            store.add_node(node(number), machine(number), "", record)
            self.power(name, number)
        return store

    def directory(self, run: str) -> RunDir:
        return RunDir(self.home / "runs" / run)

    def power(self, run: str, number: int, boot_id: str = BOOT) -> None:
        """Power on a node: this process stands for the machine."""
        directory = self.directory(run).node(node(number))
        directory.create()
        directory.boot_id.write_text(f"{boot_id}\n", encoding="utf-8")
        me = os.getpid()
        directory.processes.write_text(json.dumps({"node": [me, start_time(me)]}), encoding="utf-8")

    def report(
        self,
        run: str,
        number: int,
        boot_id: str = BOOT,
        drill_until: datetime | None = None,
        hardware: tuple[DeviceGroup, ...] = (),
    ) -> None:
        """Have the agent of a node report XID 74, and XID 31 as a notice."""
        finding = Finding(
            family="xid",
            condition=Condition.SOFTWARE,
            reason=Reason.XID_USER_APP,
            severity=Severity.WARNING,
            remedy=Remedy.NONE,
            message="NVRM: Xid (PCI:0000:b9:00): 31, MMU Fault",
            observed_at=NOW,
            code=31,
        )
        fault = Fault(
            family="xid",
            condition=Condition.NVIDIA_TERMINATE,
            reason=Reason.XID_REPLACE,
            severity=Severity.FATAL,
            remedy=Remedy.REPLACE,
            message=LINE,
            since=NOW,
            code=74,
        )
        report = NodeReport(
            node=node(number),
            boot_id=boot_id,
            drill_until=drill_until,
            sequence=1,
            reported_at=NOW,
            faults=(fault,),
            notices=(finding,),
            hardware=hardware,
        )
        directory = self.directory(run).node(node(number))
        directory.report.write_text(json.dumps(to_plain(report)), encoding="utf-8")
        directory.heartbeat.write_text(f"{boot_id} 17\n", encoding="utf-8")
