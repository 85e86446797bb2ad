import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.adapters.host.report_files import LOCK, ReportFiles, sole_agent
from holdfast.detectors.contract import LogLine, Profile, Readings
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.gpu_xid import build
from holdfast.model.errors import BackendError, ConfigError, StorageFull
from holdfast.model.report import NodeReport

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)


def report(sequence: int = 1) -> NodeReport:
    lines = tuple(
        LogLine(message=f"NVRM: Xid (PCI:0000:b9:00): {code}, ä", observed_at=NOW)
        for code in (13, 63, 74, 999)
    )
    health = fold(Health(), build(Profile.HYPERPOD).detect(Readings(kernel_log=lines)))
    return NodeReport(
        node="n1",
        boot_id="b1",
        sequence=sequence,
        reported_at=NOW,
        faults=health.faults,
        notices=health.notices,
    )


@pytest.fixture
def files(tmp_path: Path) -> ReportFiles:
    return ReportFiles(tmp_path / "run" / "holdfast")


def directory(tmp_path: Path) -> Path:
    return tmp_path / "run" / "holdfast"


def test_a_report_is_read_back_as_it_was(files: ReportFiles, tmp_path: Path) -> None:
    files.publish(report())

    assert files.last() == report()
    assert ReportFiles(directory(tmp_path)).last() == report()


def test_there_is_no_last_report_at_first(files: ReportFiles) -> None:
    assert files.last() is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"node": 1}', "\0" * 100])
def test_a_damaged_report_is_none(files: ReportFiles, tmp_path: Path, text: str) -> None:
    (directory(tmp_path) / "report.json").write_text(text, encoding="utf-8")

    assert files.last() is None


def test_a_report_is_replaced_as_a_whole(files: ReportFiles, tmp_path: Path) -> None:
    path = directory(tmp_path) / "report.json"
    files.publish(report(1))
    with path.open(encoding="utf-8") as first:
        files.publish(report(2))

        assert '"sequence": 1' in first.read()
    assert '"sequence": 2' in path.read_text(encoding="utf-8")
    assert os.listdir(path.parent) == ["report.json"]


def test_a_heartbeat_is_written_in_place(files: ReportFiles, tmp_path: Path) -> None:
    path = directory(tmp_path) / "heartbeat"
    files.heartbeat("b1", 1)
    inode = path.stat().st_ino
    with path.open(encoding="utf-8") as reader:
        files.heartbeat("b1", 22)

        assert reader.read() == "b1 22\n"
    assert path.stat().st_ino == inode


def test_nothing_is_left_of_a_longer_heartbeat(files: ReportFiles, tmp_path: Path) -> None:
    files.heartbeat("another-boot", 123456)
    files.heartbeat("b1", 1)

    assert (directory(tmp_path) / "heartbeat").read_text(encoding="utf-8") == "b1 1\n"


def test_a_directory_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="file/run"):
        ReportFiles(tmp_path / "file" / "run")


def test_what_cannot_be_written_is_an_error_that_names_the_file(
    files: ReportFiles, tmp_path: Path
) -> None:
    directory(tmp_path).rmdir()

    with pytest.raises(BackendError, match=r"report\.json: No such file"):
        files.publish(report())
    with pytest.raises(BackendError, match="heartbeat: No such file"):
        files.heartbeat("b1", 1)


def test_a_full_disk_is_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ReportFiles(tmp_path)
    opened = os.open

    def full(path: Path, flags: int, mode: int = 0o777) -> int:
        is_new = Path(path).name.startswith(".report.json.")
        return opened("/dev/full" if is_new else path, os.O_WRONLY if is_new else flags, mode)

    monkeypatch.setattr(os, "open", full)
    (tmp_path / "heartbeat").symlink_to("/dev/full")

    with pytest.raises(StorageFull):
        files.publish(report())
    with pytest.raises(BackendError):
        files.heartbeat("b1", 1)


def test_the_lock_of_an_agent_does_not_keep_its_file_system_writable(tmp_path: Path) -> None:
    with sole_agent(tmp_path):
        opened = [
            int(fd)
            for fd in os.listdir("/proc/self/fd")
            if os.path.realpath(f"/proc/self/fd/{fd}") == str(tmp_path / LOCK)
        ]
        modes = [fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE for fd in opened]

        assert modes == [os.O_RDONLY]
