"""Drills: for a bounded time, lines that anyone can write have the effect of the kernel's."""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest

from holdfast.adapters.host.report_files import ReportFiles
from holdfast.apps.agent.main import main
from holdfast.model.names import Reason
from holdfast.model.report import NodeReport
from tests.engines.ports import free_port

TIMEOUT_S = 90.0
XID = (
    "NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error detected "
    "on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
)
HYPERPOD = "echo \"$(date '+%b %d %H:%M:%S') $(hostname) kernel: {}\" >> {}"


def eventually(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Node:
    """The files of a machine, and its agent."""

    def __init__(self, folder: Path) -> None:
        self.root, self.kmsg, self.folder = folder, folder / "dev/kmsg", folder / "run"
        self.messages = folder / "var/log/messages"
        self.config = folder / "agent.toml"
        for path in (self.kmsg, self.messages):
            path.parent.mkdir(parents=True)
            path.touch()
        (folder / "boot_id").write_text("b1\n", encoding="utf-8")
        self.config.touch()
        self.processes: list[subprocess.Popen[bytes]] = []

    def argv(self, *extra: str) -> list[str]:
        return [
            *("--config", str(self.config), "--node", "n1", "--root", str(self.root)),
            *("--boot-id-file", str(self.root / "boot_id"), "--report-dir", str(self.folder)),
            *("--heartbeat", "50ms", "--logs-only", *extra),
        ]

    def start(self, *extra: str) -> None:
        argv = [sys.executable, "-m", "holdfast.apps.agent.main", *self.argv(*extra)]
        with (self.root / "errors").open("ab") as errors:
            self.processes.append(subprocess.Popen(argv, stderr=errors))
        eventually((self.folder / "heartbeat").exists)

    def run_drill_of_hyperpod(self) -> None:
        subprocess.run(
            ["bash", "-c", HYPERPOD.format(XID, shlex.quote(str(self.messages)))], check=True
        )

    def log(self, facility: int, message: str) -> None:
        with self.kmsg.open("a", encoding="utf-8") as kmsg:
            kmsg.write(f"{facility * 8 + 4},1,2,-;{message}\n")

    def report(self) -> NodeReport:
        report = ReportFiles(self.folder).last()
        assert report is not None
        return report

    def codes(self) -> list[int | None]:
        return [fault.code for fault in self.report().faults]

    def reasons(self) -> list[str]:
        return [notice.reason for notice in self.report().notices]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    for process in node.processes:
        process.kill()
        process.wait()


def test_the_drill_of_hyperpods_guide_works_verbatim_in_a_drill(node: Node) -> None:
    node.start("--drill")

    node.run_drill_of_hyperpod()

    eventually(lambda: node.codes() == [74])
    report = node.report()
    assert report.drill_until is not None
    assert timedelta(minutes=59) < report.drill_until - report.reported_at <= timedelta(hours=1)
    assert node.reasons() == [Reason.DRILL_ACTIVE]
    assert "drill active until 2" in (node.root / "errors").read_text(encoding="utf-8")


def test_a_metric_shows_a_drill_until_it_ends(node: Node) -> None:
    port, until = free_port(), datetime.now(UTC) + timedelta(seconds=4)
    telemetry = f"[telemetry]\nlisten = {port}\n"
    node.config.write_text(f"drill_until = {until.isoformat()}\n{telemetry}", encoding="utf-8")
    node.start()

    def shows(value: int) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:  # not listening yet
            return False
        return f"holdfast_agent_drill_active {value}" in lines

    eventually(lambda: shows(1))
    eventually(lambda: shows(0))
    assert datetime.now(UTC) >= until


def test_without_a_drill_no_log_file_is_read(node: Node) -> None:
    node.start()

    node.run_drill_of_hyperpod()
    node.log(0, XID.replace("74", "95"))

    eventually(lambda: node.codes() == [95])
    report = node.report()
    assert (report.suspects, report.notices, report.drill_until) == ((), (), None)


def test_a_log_file_that_is_enabled_warns_until_the_kernel_reports_the_same(node: Node) -> None:
    node.start("--log-file", str(node.messages))

    node.run_drill_of_hyperpod()
    eventually(lambda: [one.code for one in node.report().suspects] == [74])
    assert node.codes() == []

    node.log(0, XID)
    eventually(lambda: node.codes() == [74])
    assert node.report().suspects == ()


def test_a_drill_of_the_configuration_ends_and_is_no_longer_reported(node: Node) -> None:
    until = datetime.now(UTC) + timedelta(seconds=3)
    node.config.write_text(f"drill_until = {until.isoformat()}\n", encoding="utf-8")
    node.start()
    eventually(lambda: node.report().drill_until == until)

    eventually(lambda: node.report().drill_until is None)
    node.log(1, XID)

    eventually(lambda: 74 in [notice.code for notice in node.report().notices])
    assert node.codes() == []
    assert Reason.DRILL_ACTIVE not in node.reasons()


def test_a_restarted_agent_does_not_report_the_drill_of_the_one_before(node: Node) -> None:
    node.start("--drill")
    eventually(lambda: node.reasons() == [Reason.DRILL_ACTIVE])
    process = node.processes.pop()
    process.kill()
    process.wait()

    node.start()

    eventually(lambda: node.report().drill_until is None)
    assert node.reasons() == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("{later}", "is more than one hour ahead; set a time until 2"),
        ("2026-01-31T12:00:00", "expected a time with its zone (RFC 3339) such as 2026-01-31T"),
        ('"soon"', "expected a time with its zone (RFC 3339) such as 2026-01-31T12:00:00Z, got"),
        ("0001-01-01T00:00:00+14:00", "expected a time with its zone"),
    ],
)
def test_the_end_of_a_drill_is_refused_with_what_is_expected(
    node: Node, capsys: pytest.CaptureFixture[str], value: str, problem: str
) -> None:
    later = datetime.now(UTC) + timedelta(minutes=61)
    text = value.format(later=later.isoformat())
    node.config.write_text(f"drill_until = {text}\n", encoding="utf-8")

    assert main(node.argv("--check-config")) == 2

    message = capsys.readouterr().err
    assert "drill_until: " in message
    assert problem in message


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_drill_that_is_over_is_valid(node: Node, quote: str) -> None:
    node.config.write_text(f"drill_until = {quote}2026-01-31T12:00:00+01:00{quote}\n", "utf-8")

    assert main(node.argv("--check-config")) == 0


def test_a_line_of_a_user_counts_for_once_in_a_drill_only(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    node.log(1, XID)

    codes = []
    for extra in ((), ("--drill",)):
        main(node.argv("--once", "--output", "json", *extra))
        codes.append([one["code"] for one in json.loads(capsys.readouterr().out)["faults"]])

    assert codes == [[], [74]]
