import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from launch.cgroup_limits import memory_limited_to

from holdfast.adapters.host.kernel_warnings import read_warnings
from holdfast.adapters.host.kmsg import LINES, KmsgDevice, open_kmsg
from holdfast.adapters.host.log_file import LogFile

DEVICE = Path("/dev/kmsg")
MARKS = ("NVRM",)


class Kernel:
    """The kernel's end of a device that gives one record for each read."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs.setblocking(False)

    def log(self, sequence: int, message: str, seconds: float = 1.0, flags: str = "-") -> None:
        microseconds = int(seconds * 1_000_000)
        self.ours.send(f"4,{sequence},{microseconds},{flags};{message}\n".encode())

    def device(self, position: dict[str, int] | None = None) -> KmsgDevice:
        return KmsgDevice(os.dup(self.theirs.fileno()), MARKS, position)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.ours.close()
    kernel.theirs.close()


def now() -> datetime:
    return datetime.now(UTC)


def drained(log: KmsgDevice | LogFile) -> list[str]:
    messages: list[str] = []
    while lines := log.read(now()):
        messages += [line.message for line in lines]
    log.close()
    return messages


def test_each_record_is_a_line(kernel: Kernel) -> None:
    kernel.log(1, r"NVRM: a\x0aNVRM: b" + "\n SUBSYSTEM=pci\n DEVICE=+pci:0000:b9:00.0")
    kernel.log(2, "usb 1-1: new device")
    kernel.log(3, "NVRM: c", flags="-,caller=T1")

    assert drained(kernel.device()) == ["NVRM: a\nNVRM: b", "NVRM: c"]


def test_what_an_agent_before_has_read_is_left_out(kernel: Kernel) -> None:
    first = kernel.device()
    kernel.log(7, "NVRM: a")
    assert len(first.read(now())) == 1
    for sequence in (6, 7, 8):
        kernel.log(sequence, f"NVRM: {sequence}")

    assert drained(kernel.device(dict(first.position))) == ["NVRM: 8"]
    first.close()


def test_records_of_no_interest_do_not_hide_those_behind_them(kernel: Kernel) -> None:
    device = kernel.device()
    for sequence in range(100):
        kernel.log(sequence, "usb 1-1: new device")
    kernel.log(100, "NVRM: a")

    assert [line.message for line in device.read(now())] == ["NVRM: a"]
    device.close()


def test_a_storm_is_read_in_parts(kernel: Kernel) -> None:
    device = kernel.device()
    for sequence in range(3):
        kernel.log(sequence, "\n".join(["NVRM: a"] * (LINES - 1)))

    parts = [len(device.read(now())) for _ in range(3)]
    device.close()

    assert parts == [2 * (LINES - 1), LINES - 1, 0]


def test_records_have_the_time_at_which_they_were_logged(kernel: Kernel) -> None:
    device = kernel.device()
    kernel.log(1, "NVRM: a", time.monotonic() - 60)
    kernel.log(2, "NVRM: b", time.monotonic() + 60)

    at = now()
    old, ahead = device.read(at)
    device.close()

    assert abs(at - timedelta(seconds=60) - old.observed_at) < timedelta(seconds=5)
    assert ahead.observed_at == at


def test_a_record_without_header_is_left_out(kernel: Kernel) -> None:
    kernel.ours.send(b"NVRM: a\n")

    assert drained(kernel.device()) == []


def test_a_regular_file_holds_records_of_this_boot(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("4,1,2,-;NVRM: a\n SUBSYSTEM=NVRM\n4,2,3,-;usb\n4,3,4,-;NVRM: b\n", "utf-8")

    assert drained(open_kmsg(path, MARKS, None)) == ["NVRM: a", "NVRM: b"]


def test_a_missing_kernel_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_kmsg(tmp_path / "kmsg", MARKS, None)


def kmsg_or_skip() -> None:
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        pytest.skip("/dev/kmsg cannot be read and written here: run the tests as root")


def write_record(message: str) -> None:
    with DEVICE.open("w", encoding="utf-8") as device:
        device.write(f"<6>{message}\n")


def until_seen(device: KmsgDevice, words: str) -> list[str]:
    deadline = time.monotonic() + 10
    messages: list[str] = []
    while not any(words in message for message in messages):
        assert time.monotonic() < deadline
        messages += [line.message for line in device.read(now())]
    return messages


def test_the_device_of_this_machine_is_replayed_and_followed() -> None:
    kmsg_or_skip()
    words = f"NVRM: test {time.monotonic_ns()}"
    write_record(f"{words} before")

    device = open_kmsg(DEVICE, MARKS, None)
    assert isinstance(device, KmsgDevice)
    until_seen(device, f"{words} before")
    write_record(f"{words} after")
    until_seen(device, f"{words} after")
    again = open_kmsg(DEVICE, MARKS, device.position)
    left = [line.message for line in again.read(now()) if words in line.message]
    device.close()
    again.close()

    assert left == []


def test_the_warnings_of_this_machine_are_evidence_of_a_hang() -> None:
    kmsg_or_skip()
    words = f"holdfast test {time.monotonic_ns()}"
    for priority in (4, 6):
        with DEVICE.open("w", encoding="utf-8") as device:
            device.write(f"<{priority}>{words} {priority}\n")
    before = now()
    kept = read_warnings("n")

    assert (kept.node, kept.note) == ("n", "")
    [seen] = [one for one in kept.lines if words in one.text]
    assert (seen.text, seen.is_kernel) == (f"{words} 4", False)
    assert abs(before - seen.at) < timedelta(seconds=5)


def test_a_kernel_log_that_cannot_be_read_is_stated(tmp_path: Path) -> None:
    file, missing = tmp_path / "kmsg", tmp_path / "none"
    file.write_text("4,1,2000000,-;NVRM: a\n SUBSYSTEM=pci\n6,2,3,-;usb\n", "utf-8")
    kept = read_warnings("n", (missing, file))

    assert [one.text for one in kept.lines] == ["NVRM: a"]
    assert kept.note == f"{missing} could not be read: No such file or directory"


READS = """
import os, pathlib, sys
name, kills = sys.argv[1:]
sys.stdin.readline()
child = os.fork() if kills else 0
if kills and not child:
    pathlib.Path("/proc/self/comm").write_text(name)
    blocks = [b"x" * (1 << 20 | number) for number in range(1000)]
    os._exit(0)
status = os.waitpid(child, 0)[1] if child else 0
from holdfast.adapters.host.kernel_warnings import read_warnings
print(status, any(f"({name})" in one.text for one in read_warnings("n").lines))
"""


def read_in_group(name: str, kills: str) -> str:
    """What a process in a control group prints, one child of which may need too much memory."""
    process = subprocess.Popen(
        [sys.executable, "-c", READS, name, kills],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with memory_limited_to(64, process.pid, f"holdfast-{name}-{kills}"):
        printed, _ = process.communicate("\n", timeout=60)
    return printed


def test_an_oom_kill_is_evidence_in_the_control_group_of_the_job_alone() -> None:
    kmsg_or_skip()
    name = f"oom-{os.getpid()}"

    assert read_in_group(name, "kills") == f"{signal.SIGKILL} True\n"
    assert read_in_group(name, "") == "0 False\n"


def overwrite_log() -> None:
    """Write until a reader that does not read is overrun."""
    reader = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK)
    is_overrun = False
    while not is_overrun:
        for _ in range(100):
            write_record("holdfast test " + "x" * 900)
        try:
            os.read(reader, 16384)
        except BrokenPipeError:
            is_overrun = True
    os.close(reader)


def test_records_that_were_overwritten_unread_end_nothing() -> None:
    if os.environ.get("HOLDFAST_REQUIRE_ALL") != "1":
        pytest.skip("it overwrites the kernel's log: set HOLDFAST_REQUIRE_ALL=1")
    kmsg_or_skip()
    device = open_kmsg(DEVICE, MARKS, None)
    assert isinstance(device, KmsgDevice)
    overwrite_log()
    words = f"NVRM: test {time.monotonic_ns()}"
    write_record(words)

    until_seen(device, words)
    device.close()
