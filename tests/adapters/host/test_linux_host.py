import select
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host.linux import LinuxHost, Logs
from holdfast.adapters.host.sampler import Reading, SourceSchedule
from holdfast.detectors.contract import LOGS, Readings, Sample
from holdfast.model.errors import BackendError, ConfigError

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)


class StoppedClock:
    def now(self) -> datetime:
        return NOW


class Machine:
    def __init__(self, directory: Path) -> None:
        self.logs = Logs(
            kmsg=directory / "kmsg",
            log_files=(directory / "messages", directory / "kern.log"),
            cursors=directory / "state" / "cursors.json",
        )
        for path in (self.logs.kmsg, *self.logs.log_files):
            path.touch()

    def log(self, words: str, path: Path | None = None) -> None:
        with (path or self.logs.kmsg).open("a", encoding="utf-8") as log:
            log.write(f"4,1,2,-;NVRM: {words}\n" if path is None else f"kernel: NVRM: {words}\n")

    def host(self, boot_id: str = "b1", *, resume: bool = True) -> LinuxHost:
        return LinuxHost(
            self.logs, boot_id=boot_id, resume=resume, keywords=("NVRM",), clock=StoppedClock()
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def read(host: LinuxHost) -> list[str]:
    words: list[str] = []
    while lines := host.read().kernel_log:
        words += [line.message.removeprefix("NVRM: ") for line in lines]
    return words


def test_lines_of_all_logs_are_read(machine: Machine) -> None:
    host = machine.host()
    machine.log("a")
    machine.log("b", machine.logs.log_files[0])
    machine.log("c", machine.logs.log_files[1])

    assert read(host) == ["a", "b", "c"]
    host.close()


def test_of_this_boot_the_kernel_log_is_replayed_and_the_others_are_not(machine: Machine) -> None:
    machine.log("a")
    machine.log("of an earlier boot", machine.logs.log_files[0])

    host = machine.host()

    assert read(host) == ["a"]
    assert host.boot_id() == "b1"
    host.close()


def test_a_new_agent_goes_on_behind_the_commit(machine: Machine) -> None:
    host = machine.host()
    machine.log("a")
    machine.log("b", machine.logs.log_files[0])
    assert read(host) == ["a", "b"]
    host.commit()
    machine.log("c")
    machine.log("d", machine.logs.log_files[0])
    assert read(host) == ["c", "d"]
    host.close()

    again = machine.host()

    assert read(again) == ["c", "d"]
    again.close()


def test_after_a_reboot_no_line_of_the_boot_before_counts(machine: Machine) -> None:
    host = machine.host()
    host.commit()
    host.close()
    machine.log("the last words", machine.logs.log_files[0])
    machine.logs.kmsg.unlink()
    machine.logs.kmsg.touch()
    machine.log("a")

    again = machine.host("b2")
    machine.log("b", machine.logs.log_files[0])

    assert read(again) == ["a", "b"]
    again.close()


def test_an_agent_that_does_not_resume_reads_as_if_it_were_the_first(machine: Machine) -> None:
    host = machine.host()
    machine.log("a")
    assert read(host) == ["a"]
    host.commit()
    host.close()

    again = machine.host(resume=False)

    assert read(again) == ["a"]
    again.close()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"positions": {}}', '{"boot_id": "b1", "positions": 1}']
)
def test_damaged_cursors_are_none(machine: Machine, text: str) -> None:
    machine.logs.cursors.parent.mkdir()
    machine.logs.cursors.write_text(text, encoding="utf-8")
    machine.log("a")

    host = machine.host()

    assert read(host) == ["a"]
    host.close()


def test_a_commit_without_news_writes_nothing(machine: Machine) -> None:
    host = machine.host()
    host.commit()
    inode = machine.logs.cursors.stat().st_ino

    host.commit()
    assert machine.logs.cursors.stat().st_ino == inode

    machine.log("a")
    read(host)
    host.commit()
    assert machine.logs.cursors.stat().st_ino != inode
    host.close()


def test_a_commit_that_cannot_be_written_is_tried_again(machine: Machine) -> None:
    host = machine.host()
    state = machine.logs.cursors.parent
    state.rmdir()
    with pytest.raises(BackendError, match="cursors"):
        host.commit()

    state.mkdir()
    host.commit()

    assert machine.logs.cursors.exists()
    host.close()


def test_news_wakes_a_select(machine: Machine) -> None:
    host = machine.host()
    read(host)
    assert not host.is_polled()
    assert select.select(host.filenos(), [], [], 0)[0] == []

    machine.log("a", machine.logs.log_files[1])

    assert select.select(host.filenos(), [], [], 0)[0] != []

    assert read(host) == ["a"]
    assert select.select(host.filenos(), [], [], 0)[0] == []
    host.close()


def test_a_log_that_fails_hides_no_other(machine: Machine) -> None:
    path = machine.logs.log_files[0]
    path.unlink()
    host = machine.host()
    path.mkdir()
    machine.log("a")
    machine.log("b", machine.logs.log_files[1])

    assert [line.message for line in host.read().kernel_log] == ["NVRM: a", "NVRM: b"]
    host.close()


def test_a_log_that_fails_is_reported_once_and_so_is_its_return(machine: Machine) -> None:
    path = machine.logs.log_files[0]
    path.unlink()
    host = machine.host()

    assert host.read().samples[LOGS].error == ""
    path.mkdir()
    assert host.read().samples[LOGS].error == f"{path}: not a regular file"
    assert host.read() == Readings()
    path.rmdir()
    assert host.read().samples[LOGS].error == ""
    host.close()


def test_a_missing_syslog_file_is_waited_for_and_wakes(machine: Machine) -> None:
    path = machine.logs.log_files[0]
    path.unlink()
    host = machine.host()
    read(host)

    machine.log("a", path)

    assert select.select(host.filenos(), [], [], 0)[0] != []
    assert read(host) == ["a"]
    host.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda logs: replace(logs, kmsg=logs.kmsg.with_name("none")),
        lambda logs: replace(logs, kmsg=logs.kmsg.parent),
        lambda logs: replace(logs, log_files=(logs.kmsg.parent,)),
        lambda logs: replace(logs, cursors=logs.kmsg / "cursors.json"),
    ],
    ids=["no kmsg", "kmsg is a directory", "log file is a directory", "no place for cursors"],
)
def test_what_cannot_be_used_is_bad_input_and_named(machine: Machine, change) -> None:
    machine.logs = change(machine.logs)

    with pytest.raises(ConfigError, match=str(machine.logs.kmsg.parent)):
        machine.host()


def test_samples_go_on_in_the_next_agent_of_the_boot_and_begin_anew_in_another(
    machine: Machine,
) -> None:
    def sampled(boot_id: str) -> Sample:
        host = LinuxHost(
            machine.logs, boot_id=boot_id, resume=True, keywords=(), clock=StoppedClock(),
            plans={
                "a": SourceSchedule(
                    read=lambda: Reading(values={"n": "1"}), every=timedelta(hours=1)
                )
            },
        )  # fmt: skip
        assert not host.has_all_samples
        while "a" not in (samples := host.read().samples):
            select.select(host.filenos(), [], [], 20)
        host.commit()
        host.close()
        return samples["a"]

    assert [dict(sampled(boot).before) for boot in ("b1", "b1", "b2")] == [{}, {"n": "1"}, {}]
