import encodings.idna  # noqa: F401 - for nobody, who may not read root's Python
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.host.report_files import ReportFiles
from holdfast.apps.agent.main import main
from holdfast.model.names import Reason
from holdfast.model.report import NodeReport

TIMEOUT_S = 90.0  # far more than anything here takes, for machines that are busy

XID = "NVRM: Xid (PCI:0000:b9:00): {}, pid=<unknown>, name=<unknown>, NVLink: fatal error"
KMSG = Path("/dev/kmsg")
NOBODY = 65534


def eventually(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Node:
    """A node's files, and an agent that watches them."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        self.kmsg = directory / "kmsg"
        self.messages = directory / "messages"
        self.boot_id = directory / "boot_id"
        self.reports = directory / "run"
        self.kmsg.touch()
        self.messages.touch()
        self.boot_id.write_text("boot-1\n", encoding="utf-8")
        self.processes: list[subprocess.Popen[str]] = []

    def argv(self, *extra: str) -> list[str]:
        return [
            *("--node", "n1", "--kmsg", str(self.kmsg), "--log-file", str(self.messages)),
            *("--boot-id-file", str(self.boot_id), "--report-dir", str(self.reports)),
            *("--root", str(self.root)),
            *("--heartbeat", "50ms", *extra),
        ]

    def start(self, *extra: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.apps.agent.main", *self.argv(*extra)],
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self.processes.append(process)
        return process

    def start_and_wait(self, *extra: str) -> subprocess.Popen[str]:
        before = self.heartbeat()
        process = self.start(*extra)
        eventually(lambda: self.heartbeat() not in ("", before))
        return process

    def stop(self, process: subprocess.Popen[str]) -> str:
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        return errors

    def log(self, code: int, path: Path | None = None) -> None:
        prefix = "4,1,2,-;" if path is None else "Nov 20 10:00:00 host kernel: "
        with (path or self.kmsg).open("a", encoding="utf-8") as log:
            log.write(f"{prefix}{XID.format(code)}\n")

    def report(self) -> NodeReport | None:
        return ReportFiles(self.reports).last()

    def faults(self) -> dict[int | None, int]:
        report = self.report()
        return {fault.code: fault.count for fault in report.faults} if report is not None else {}

    def beats(self) -> int:
        return int(self.heartbeat().split()[1])

    def wait_for_beats(self, number: int) -> None:
        seen = self.beats()
        eventually(lambda: self.beats() >= seen + number)

    def heartbeat(self) -> str:
        path = self.reports / "heartbeat"
        return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    for process in node.processes:
        process.kill()
        process.communicate()


def test_an_agent_reports_lives_and_ends_on_sigterm(node: Node) -> None:
    process = node.start()
    eventually(node.heartbeat)
    node.wait_for_beats(2)
    node.log(74)
    eventually(lambda: 74 in node.faults())

    report = node.report()
    assert report is not None
    assert (report.node, report.boot_id) == ("n1", "boot-1")
    assert report.faults[0].device == "PCI:0000:b9:00"
    assert node.stop(process) == ""


def test_systemd_is_notified_while_the_agent_runs_and_no_longer_when_it_hangs(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        agent = node.start_and_wait()
        for _ in range(3):
            assert systemd.recv(100) == b"WATCHDOG=1"

        agent.send_signal(signal.SIGSTOP)
        while select.select([systemd], [], [], 2)[0]:  # those that were under way
            systemd.recv(100)
        agent.send_signal(signal.SIGCONT)
        node.stop(agent)


def test_an_agent_ends_on_ctrl_c(node: Node) -> None:
    process = node.start_and_wait()

    process.send_signal(signal.SIGINT)

    assert process.wait(TIMEOUT_S) == 0


def test_both_forms_of_the_log_are_one_fault(node: Node) -> None:
    node.start_and_wait("--drill")

    node.log(74)
    node.log(74, node.messages)
    node.log(73, node.messages)

    eventually(lambda: node.faults() == {74: 2, 73: 1})


def test_the_profile_is_that_of_the_option(node: Node) -> None:
    node.log(79)
    node.start("--xid-profile", "nvidia")

    eventually(lambda: 79 in node.faults())
    report = node.report()
    assert report is not None
    assert report.faults[0].remedy == "reboot"


def test_a_restarted_agent_misses_nothing_and_counts_nothing_twice(node: Node) -> None:
    process = node.start_and_wait("--drill")
    node.log(74)
    node.log(95, node.messages)
    eventually(lambda: node.faults() == {74: 1, 95: 1})
    node.stop(process)
    node.log(74)
    node.log(73, node.messages)

    node.start("--drill")

    eventually(lambda: node.faults() == {74: 2, 95: 1, 73: 1})


def test_an_agent_that_was_killed_is_no_different(node: Node) -> None:
    process = node.start_and_wait("--drill")
    node.log(74)
    node.log(95, node.messages)
    eventually(lambda: node.faults() == {74: 1, 95: 1})
    node.wait_for_beats(2)  # by then all is committed
    process.kill()
    process.wait()
    node.log(73)

    node.start("--drill")

    eventually(lambda: node.faults() == {74: 1, 95: 1, 73: 1})


def test_an_agent_whose_report_is_lost_reads_the_kernels_log_again(node: Node) -> None:
    process = node.start_and_wait()
    node.log(74)
    eventually(lambda: 74 in node.faults())
    node.wait_for_beats(2)  # by then the cursors are kept
    node.stop(process)
    (node.reports / "report.json").unlink()

    node.start()

    eventually(lambda: 74 in node.faults())


def test_a_line_is_seen_without_waiting_for_a_heartbeat(node: Node) -> None:
    node.start("--drill", "--heartbeat", "1h")
    eventually(node.heartbeat)

    node.log(74)
    eventually(lambda: 74 in node.faults())
    node.log(73, node.messages)
    eventually(lambda: 73 in node.faults())

    assert node.beats() == 1


@pytest.fixture
def unwatchable_node() -> Iterator[Node]:
    """A node in a directory that may be used, but not listed: inotify refuses to watch it."""
    directory = Path(tempfile.mkdtemp())
    node = Node(directory)
    for path in (node.kmsg, node.messages):
        path.chmod(0o666)
    node.reports.mkdir(mode=0o777)
    node.reports.chmod(0o777)
    directory.chmod(0o311)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    yield node
    if is_root:
        os.seteuid(0)
    directory.chmod(0o700)
    shutil.rmtree(directory)


def test_where_files_cannot_be_watched_they_are_polled(unwatchable_node: Node) -> None:
    node = unwatchable_node

    def log_and_end() -> None:
        try:
            eventually(node.heartbeat)
            node.log(74)
            eventually(lambda: 74 in node.faults())
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor() as threads:
        done = threads.submit(log_and_end)
        assert main(node.argv("--heartbeat", "1h")) == 0
        done.result()


def test_a_reboot_clears_all_faults(node: Node) -> None:
    process = node.start_and_wait("--drill")
    node.log(74)
    node.log(95, node.messages)
    eventually(lambda: node.faults() == {74: 1, 95: 1})
    process.kill()
    process.wait()
    node.log(79, node.messages)  # the last words of the boot before
    node.boot_id.write_text("boot-2\n", encoding="utf-8")
    node.kmsg.unlink()
    node.kmsg.touch()

    node.start("--drill")

    eventually(lambda: node.heartbeat().startswith("boot-2 "))
    report = node.report()
    assert report is not None
    assert report.boot_id == "boot-2"
    assert report.faults == ()


def test_a_syslog_that_is_rotated_and_one_that_comes_late_are_followed(node: Node) -> None:
    node.messages.unlink()
    node.start_and_wait("--drill")
    node.log(74, node.messages)
    eventually(lambda: 74 in node.faults())

    node.messages.rename(node.messages.with_name("messages.1"))
    node.log(73, node.messages)

    eventually(lambda: 73 in node.faults())


def test_a_heartbeat_replaces_no_report(node: Node) -> None:
    node.start_and_wait()
    path = node.reports / "report.json"
    before = path.stat().st_ino

    node.wait_for_beats(3)

    assert path.stat().st_ino == before


def test_a_disk_that_is_full_is_reported_once_and_waited_for(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    node.reports.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(node.reports)]
    subprocess.run(mount, check=True)
    try:
        process = node.start_and_wait()
        filler = node.reports / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        node.log(74)
        node.wait_for_beats(5)
        assert node.faults() == {}

        filler.unlink()
        eventually(lambda: 74 in node.faults())
        errors = node.stop(process)
    finally:
        subprocess.run(["umount", "--lazy", str(node.reports)], check=True)
    lines = errors.splitlines()
    assert len(set(lines)) == len(lines) >= 1, "a file is named once"
    assert all("cannot write" in line and "No space left on device" in line for line in lines)


DIE_WITH_PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "holdfast.apps.agent.main", *sys.argv[1:]])
print(child.pid, flush=True)
time.sleep(60)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_an_agent_dies_with_its_parent_if_asked_to(node: Node) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", DIE_WITH_PARENT, *node.argv("--die-with-parent")],
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    node.processes.append(parent)
    assert parent.stdout is not None
    agent = int(parent.stdout.readline())
    eventually(node.heartbeat)

    parent.kill()
    parent.wait()

    eventually(lambda: not is_running(agent))


def test_an_agent_whose_parent_has_died_already_does_not_start(node: Node) -> None:
    process = node.start("--die-with-parent", "1" if os.getpid() != 1 else "2")

    assert process.wait(TIMEOUT_S) == 128 + signal.SIGKILL
    assert node.heartbeat() == ""


def bad_input(node: Node, capsys: pytest.CaptureFixture[str], *extra: str) -> str:
    assert main(node.argv(*extra)) == 2
    assert node.report() is None
    return capsys.readouterr().err


def test_a_kernel_log_that_cannot_be_read_is_named(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    node.kmsg.unlink()

    errors = bad_input(node, capsys)

    assert errors == f"holdfast agent: cannot use {node.kmsg}: No such file or directory\n"


def test_a_log_file_that_cannot_be_read_is_named(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{node.boot_id.parent}: not a regular file" in bad_input(
        node, capsys, "--log-file", str(node.boot_id.parent)
    )


@pytest.mark.parametrize("text", [None, "", "\n"])
def test_a_boot_id_is_needed(
    node: Node, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    node.boot_id.unlink()
    if text is not None:
        node.boot_id.write_text(text, encoding="utf-8")

    assert "cannot read the boot ID" in bad_input(node, capsys)


def test_a_place_for_reports_is_needed(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    place = node.kmsg / "run"

    assert f"cannot write reports to {place}" in bad_input(node, capsys, "--report-dir", str(place))


def test_two_agents_never_share_their_place_for_reports(node: Node) -> None:
    process = node.start_and_wait()

    other = node.start()
    _, errors = other.communicate(timeout=TIMEOUT_S)
    assert other.returncode == 2
    assert (
        f"another agent reports to {node.reports}; stop it, or choose another directory" in errors
    )

    process.kill()
    process.wait()
    node.stop(node.start_and_wait())


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--heartbeat", "soon", "'soon' is not a duration"),
        ("--heartbeat", "0s", "more than 0s"),
        ("--xid-profile", "azure", "invalid choice: 'azure'"),
        ("--node", None, "expected one argument"),
    ],
)
def test_a_wrong_option_is_explained(
    capsys: pytest.CaptureFixture[str], option: str, value: str | None, words: str
) -> None:
    with pytest.raises(SystemExit) as end:
        main([option, *([value] if value is not None else [])])

    assert end.value.code == 2
    assert words in capsys.readouterr().err


LOADED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules))))
from holdfast.apps.agent.main import main
sys.exit(main(sys.argv[1:]))
"""

HEAVY = (
    "click",
    "rich",
    "sqlite3",
    "asyncio",
    "numpy",
    "boto3",
    "http",
    "ssl",
    "logging",
)


def test_a_running_agent_has_loaded_nothing_heavy(node: Node) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOADED, *node.argv()], stdout=subprocess.PIPE, encoding="utf-8"
    )
    node.processes.append(process)
    node.log(74)
    eventually(lambda: 74 in node.faults())
    process.terminate()
    output, _ = process.communicate(timeout=TIMEOUT_S)

    modules: list[Any] = json.loads(output)

    assert "holdfast.detectors.gpu_xid" in modules
    assert [name for name in modules if name.split(".")[0] in HEAVY] == []


def test_an_agent_watches_the_kernel_of_this_machine(node: Node) -> None:
    if not os.access(KMSG, os.R_OK | os.W_OK):
        pytest.skip("/dev/kmsg cannot be read and written here: run the tests as root")
    node.kmsg = KMSG
    words = f"holdfast test {time.monotonic_ns()}, which harms nothing"
    node.start_and_wait()

    KMSG.write_text(f"<6>NVRM: Xid (PCI:ffff:ff:1f): 13, {words}\n", encoding="utf-8")

    def noticed() -> list[str]:
        report = node.report()
        assert report is not None
        return [
            notice.reason
            for notice in report.notices
            if words in notice.message and notice.device == "PCI:ffff:ff:1f"
        ]

    eventually(noticed)
    assert noticed() == [Reason.XID_USER_APP]
