"""The kernel's messages in a journal: a real one, and all that a journalctl may print."""

import json
import lzma
import shutil
import stat
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.host.journal import NAME, Journal
from holdfast.adapters.host.linux import LinuxHost, Logs
from holdfast.adapters.host.log_file import Position
from holdfast.detectors.contract import LOGS, LogLine, Origin, Sample

NOW = datetime(2025, 11, 20, 13, 0, tzinfo=UTC)
RECORDING = Path(__file__).parents[2] / "recordings" / "journal" / "system.journal.xz"
TIMEOUT_S = 90.0

FAKE = """
import json, os, sys, time
folder = {folder!r}
arguments = sys.argv[1:]
records = [json.loads(line) for line in open(folder + "/records", encoding="utf-8")]
if "--lines=1" in arguments:
    records = records[:-1][-1:] if os.path.exists(folder + "/grows") else records[-1:]
after = [one.partition("=")[2] for one in arguments if one.startswith("--after-cursor=")]
places = [number for number, one in enumerate(records) if [one.get("__CURSOR")] == after]
new = records[places[0] + 1 if places else 0:]
print("".join(json.dumps(one) + "\\n" for one in new), end="", flush=True)
if "--follow" in arguments:
    with open(folder + "/starts", "a") as starts:
        starts.write("x")
    while os.path.exists(folder + "/lives"):
        time.sleep(0.01)
    os.write(1, b'{{"__CURSOR": "half a li')
    sys.exit("the journal is gone")
"""


class FakeJournal:
    """A ``journalctl`` that prints what is given to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command = folder / "journalctl"
        script = FAKE.format(folder=str(folder))
        self.command.write_text(f"#!{sys.executable} -S\n{script}", encoding="utf-8")
        self.command.chmod(self.command.stat().st_mode | stat.S_IXUSR)
        (folder / "lives").touch()
        (folder / "starts").touch()
        self.number = 0
        self.add()

    def add(self, *messages: Any, facility: str | None = "0") -> None:
        with (self.folder / "records").open("a", encoding="utf-8") as records:
            for message in messages:
                self.number += 1
                record = {
                    "__CURSOR": f"c{self.number}",
                    "__REALTIME_TIMESTAMP": str(1763640000000000 + self.number),
                    "MESSAGE": message,
                    **({} if facility is None else {"SYSLOG_FACILITY": facility}),
                }
                records.write(json.dumps(record) + "\n")

    def open(self, position: Position | None = None) -> Journal:
        return Journal((str(self.command),), ("NVRM", "NEURON"), position)


@pytest.fixture
def fake(tmp_path: Path) -> FakeJournal:
    return FakeJournal(tmp_path)


def all_of(journal: Journal) -> list[LogLine]:
    lines: list[LogLine] = []
    while more := journal.read(NOW):
        lines += more
    return lines


def messages(journal: Journal) -> list[str]:
    return [line.message for line in all_of(journal)]


def test_what_the_journal_holds_is_there_at_the_first_reading(fake: FakeJournal) -> None:
    fake.add("usb 1-1: new", "NVRM: a", *["noise"] * 50, "NVRM: b", "noise")
    journal = fake.open()

    assert messages(journal) == ["NVRM: a", "NVRM: b"]
    assert journal.position == {"cursor": "c54"}
    journal.close()


def test_a_journal_that_grows_while_it_is_opened_keeps_nobody_waiting(fake: FakeJournal) -> None:
    (fake.folder / "grows").touch()
    fake.add("noise", "noise", "noise")
    journal = fake.open()
    start = time.monotonic()

    assert messages(journal) == []
    assert time.monotonic() - start < TIMEOUT_S / 2
    assert journal.position == {"cursor": "c3"}
    journal.close()


def test_a_new_agent_goes_on_behind_the_cursor(fake: FakeJournal) -> None:
    fake.add("NVRM: a", "NVRM: b")
    journal = fake.open({"cursor": "c1"})

    assert messages(journal) == ["NVRM: b"]
    journal.close()


def test_an_agent_that_has_read_all_waits_for_nothing(fake: FakeJournal) -> None:
    fake.add("NVRM: a")
    journal = fake.open({"cursor": "c1"})
    start = time.monotonic()

    assert messages(journal) == []
    assert time.monotonic() - start < TIMEOUT_S / 2
    journal.close()


def test_a_message_has_the_time_of_its_record_and_is_never_of_the_future(
    fake: FakeJournal,
) -> None:
    fake.add("NVRM: a")
    journal = fake.open()
    [line] = all_of(journal)
    journal.close()
    early = fake.open()
    before = datetime(2020, 1, 1, tzinfo=UTC)

    assert line.observed_at == datetime(2025, 11, 20, 12, 0, 0, 1, tzinfo=UTC)
    assert [one.observed_at for one in early.read(before)] == [before]
    early.close()


def test_messages_of_other_facilities_are_not_the_kernels(fake: FakeJournal) -> None:
    fake.add("NVRM: of systemd", facility="3")
    fake.add("NVRM: of a user", facility="1")
    fake.add("NVRM: untold", facility=None)
    journal = fake.open()

    assert messages(journal) == ["NVRM: of a user", "NVRM: untold"]
    journal.close()


@pytest.mark.parametrize(
    ("message", "read"),
    [
        (list(b"NVRM: \xff\x00\x01 bytes"), "NVRM: �\x01 bytes"),
        (["NVRM: first", "second"], "NVRM: first"),
        ([list(b"NVRM: bytes"), "second"], "NVRM: bytes"),
        ("NVRM: \x00nul", "NVRM: nul"),
        ("NVRM: two\nlines", "NVRM: two\nlines"),
        ("Nov 20 10:00:00 host kernel: NVRM: a drill", "NVRM: a drill"),
    ],
)
def test_all_forms_of_a_message_are_read(fake: FakeJournal, message: Any, read: str) -> None:
    fake.add(message)
    journal = fake.open()

    assert messages(journal) == [read]
    journal.close()


@pytest.mark.parametrize(
    "message",
    [None, 7, [], {}, [None], True, "NVRM" + "x" * 2_000_000, [78] * 600_000, [300, -1, "NVRM"]],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_message_or_too_long_hides_no_other(fake: FakeJournal, message: Any) -> None:
    fake.add("NVRM: a", message, "NVRM: b")
    journal = fake.open()

    assert messages(journal) == ["NVRM: a", "NVRM: b"]
    journal.close()


def test_a_journalctl_that_dies_is_reported_and_started_again_and_nothing_is_lost_or_read_twice(
    fake: FakeJournal,
) -> None:
    fake.add("NVRM: a")
    journal = fake.open()
    assert messages(journal) == ["NVRM: a"]
    (fake.folder / "lives").unlink()
    deadline = time.monotonic() + TIMEOUT_S
    while not journal.error:
        assert time.monotonic() < deadline
        assert journal.read(NOW) == []

    assert journal.error == "journalctl ended with 1: the journal is gone"
    assert journal.fileno() is None
    fake.add("NVRM: b")
    (fake.folder / "lives").touch()
    lines: list[LogLine] = []
    while not lines:
        assert time.monotonic() < deadline
        lines = journal.read(NOW)
        time.sleep(0.01)

    assert [line.message for line in lines] == ["NVRM: b"]
    assert journal.error == ""
    assert (fake.folder / "starts").read_text(encoding="utf-8") == "xx"
    journal.close()


class StoppedClock:
    def now(self) -> datetime:
        return NOW


def host(journalctl: str, folder: Path) -> LinuxHost:
    return LinuxHost(
        Logs(journalctl=(journalctl,), cursors=folder / "state" / "cursors.json"),
        boot_id="b1", resume=True, keywords=("NVRM",), clock=StoppedClock(),
    )  # fmt: skip


def test_a_journalctl_that_is_missing_is_reported(tmp_path: Path) -> None:
    machine = host(str(tmp_path / "journalctl"), tmp_path)

    assert machine.read().samples == {
        LOGS: Sample(
            name=LOGS, taken_at=NOW,
            error="journalctl cannot be started: No such file or directory",
        )
    }  # fmt: skip
    assert len(machine.filenos()) == 2  # the files and the samples
    machine.close()


def test_a_journal_without_the_kernel_is_reported_until_the_kernel_says_something(
    fake: FakeJournal,
) -> None:
    (fake.folder / "records").touch()
    machine = host(str(fake.command), fake.folder)
    [blind] = machine.read().samples.values()
    machine.close()
    fake.add("noise")
    machine = host(str(fake.command), fake.folder)
    [seeing] = machine.read().samples.values()
    machine.close()

    assert blind.error.startswith("the journal contains no kernel message of this boot")
    assert seeing.error == ""


def test_what_was_committed_is_read_once_over_agents(fake: FakeJournal) -> None:
    fake.add("NVRM: a")

    def read(*, commits: bool) -> list[str]:
        machine = host(str(fake.command), fake.folder)
        lines = [line.message for line in machine.read().kernel_log]
        if commits:
            machine.commit()
        machine.close()
        return lines

    assert [read(commits=False), read(commits=True), read(commits=True)] == [
        ["NVRM: a"], ["NVRM: a"], [],
    ]  # fmt: skip
    kept = json.loads((fake.folder / "state" / "cursors.json").read_text(encoding="utf-8"))
    assert kept["positions"] == {NAME: {"cursor": "c1"}}


def test_a_real_journal_is_read_with_a_real_journalctl(tmp_path: Path) -> None:
    command = shutil.which("journalctl")
    if command is None:
        pytest.skip("journalctl is not installed: apt install systemd")
    (tmp_path / "system.journal").write_bytes(lzma.decompress(RECORDING.read_bytes()))
    argv = (command, f"--directory={tmp_path}")
    journal = Journal(argv, ("NVRM", "NEURON"), None)

    lines = all_of(journal)

    assert [line.message[:24] for line in lines] == [
        "NVRM: Xid (PCI:0000:b9:0",
        "NVRM: �\x01 binary",
        "NVRM: two\nlines",
        "NEURON_HW_ERR=DMA_ERROR ",
        "NVRM: long xxxxxxxxxxxxx",
    ]
    assert lines[0].observed_at == datetime(2025, 11, 20, 12, 0, 1, tzinfo=UTC)
    assert journal.error == ""
    position = journal.position
    journal.close()
    again = Journal(argv, ("NVRM", "NEURON"), position)
    assert all_of(again) == []
    assert again.error == ""
    again.close()


NO_JOURNAL = Journal(("/nonexistent/journalctl",), ("NVRM",), None)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["MESSAGE", "__CURSOR", "__REALTIME_TIMESTAMP", "SYSLOG_FACILITY"]),
                inner,
            )
        ),
    )
)
def test_no_record_breaks_the_reader(record: Any) -> None:
    for text in (json.dumps(record), json.dumps(record)[:-1]):
        assert isinstance(NO_JOURNAL._message(text.encode(), NOW), list)


def test_a_moment_that_cannot_be_is_none(fake: FakeJournal) -> None:
    journal = fake.open()
    for stamp in ("9" * 30, "-1", "soon", "", "\uff19"):
        record = {"MESSAGE": "NVRM: a", "__CURSOR": "c", "__REALTIME_TIMESTAMP": stamp}
        assert journal._message(json.dumps(record).encode(), NOW + timedelta(1)) == [
            LogLine(message="NVRM: a", observed_at=NOW + timedelta(1), origin=Origin.FILE)
        ]
    journal.close()
