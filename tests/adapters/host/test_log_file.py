import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.adapters.host.log_file import BLOCK, LogFile, Position

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
MARKS = ("NVRM",)
NOBODY = 65534


def line(number: int) -> str:
    return f"Nov 20 10:00:00 host kernel: NVRM: {number}\n"


def append(path: Path, *numbers: int) -> None:
    append_text(path, "".join(map(line, numbers)))


def append_text(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as log:
        log.write(text)


def follow(path: Path, position: Position | None = None, *, is_kernel_log: bool = False) -> LogFile:
    return LogFile(path, MARKS, position, is_kernel_log=is_kernel_log)


def drained(log: LogFile) -> list[int]:
    numbers = []
    while lines := log.read(NOW):
        numbers += [int(line.message.removeprefix("NVRM: ")) for line in lines]
    return numbers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "messages"
    append(path, 1, 2)
    return path


def test_lines_from_before_the_first_look_are_not_of_this_boot(path: Path) -> None:
    log = follow(path)
    assert drained(log) == []

    append(path, 3)
    append(path, 4)

    assert drained(log) == [3, 4]
    assert drained(log) == []


def test_a_file_of_this_boot_is_read_from_its_start(path: Path) -> None:
    assert drained(follow(path, is_kernel_log=True)) == [1, 2]


def test_lines_count_as_seen_now(path: Path) -> None:
    [first, _] = follow(path, is_kernel_log=True).read(NOW)

    assert first.observed_at == NOW


def test_a_line_that_is_not_whole_yet_is_waited_for(path: Path) -> None:
    log = follow(path)
    append_text(path, line(3)[:-5])
    assert drained(log) == []

    append_text(path, line(3)[-5:])

    assert drained(log) == [3]


def test_a_missing_file_is_waited_for_and_is_all_new(tmp_path: Path) -> None:
    path = tmp_path / "later" / "messages"
    log = follow(path)
    assert drained(log) == []

    path.parent.mkdir()
    append(path, 1)

    assert drained(log) == [1]


def test_a_file_without_news_between_much_else_is_read_to_its_end(path: Path) -> None:
    log = follow(path)
    append_text(path, "Nov 20 10:00:00 host cron[1]: nothing\n" * (3 * BLOCK // 38))
    append(path, 3)

    assert drained(log) == [3]


def test_rotation_by_renaming_loses_nothing(path: Path) -> None:
    log = follow(path)
    append(path, 3)

    old = path.rename(path.with_name("messages-20251120"))
    append(old, 4)
    append(path, 5)

    assert drained(log) == [3, 4, 5]


def test_what_is_written_to_the_old_file_before_the_new_one_is_used_is_read(path: Path) -> None:
    log = follow(path)
    old = path.rename(path.with_name("messages.1"))
    path.touch()
    assert drained(log) == []

    append(old, 3)
    assert drained(log) == [3]

    append(old, 4)
    append(path, 5)
    assert drained(log) == [4, 5]


def test_the_last_line_of_a_rotated_file_needs_no_newline(path: Path) -> None:
    log = follow(path)
    append_text(path, line(3).rstrip())
    path.rename(path.with_name("messages.1"))
    append(path, 4)

    assert drained(log) == [3, 4]


def test_a_file_that_was_cut_short_is_read_from_its_start(path: Path) -> None:
    log = follow(path)
    append(path, 3)
    assert drained(log) == [3]

    os.truncate(path, 0)
    assert drained(log) == []
    append(path, 4)

    assert drained(log) == [4]


def test_half_a_line_before_a_file_was_cut_short_is_forgotten(path: Path) -> None:
    log = follow(path)
    append_text(path, line(3)[:-3])
    assert drained(log) == []

    os.truncate(path, 0)
    append(path, 4)

    assert drained(log) == [4]


def test_a_deleted_file_is_read_to_its_end_and_its_successor_from_its_start(path: Path) -> None:
    log = follow(path)
    append(path, 3)
    path.unlink()
    assert drained(log) == [3]

    append(path, 4)

    assert drained(log) == [4]


def test_a_new_agent_goes_on_where_the_last_one_ended(path: Path) -> None:
    first = follow(path)
    append(path, 3)
    assert drained(first) == [3]
    position = first.position
    first.close()
    append(path, 4)

    assert drained(follow(path, position)) == [4]


def test_a_new_agent_reads_a_line_from_its_start(path: Path) -> None:
    first = follow(path)
    append_text(path, line(3)[:-5])
    assert drained(first) == []
    position = first.position
    append_text(path, line(3)[-5:])

    assert drained(follow(path, position)) == [3]


def test_a_new_agent_finds_the_file_under_its_rotated_name(path: Path) -> None:
    position = follow(path).position
    append(path, 3)
    path.rename(path.with_name("messages-20251120"))
    append(path, 4, 5, 6, 7)

    assert drained(follow(path, position)) == [3, 4, 5, 6, 7]


def test_a_new_agent_finds_the_rotated_file_before_there_is_a_new_one(path: Path) -> None:
    position = follow(path).position
    append(path, 3)
    path.rename(path.with_name("messages-20251120"))

    log = follow(path, position)
    assert drained(log) == [3]
    append(path, 4)

    assert drained(log) == [4]


def test_where_the_old_file_is_gone_the_new_one_is_all_new(path: Path) -> None:
    position = follow(path).position
    keep = path.rename(path.parent.parent / f"{path.parent.name}-kept")  # or its inode is reused
    append(path, 3, 4, 5, 6)

    assert drained(follow(path, position)) == [3, 4, 5, 6]
    keep.unlink()


def test_a_file_that_was_cut_short_while_no_agent_ran_is_all_new(path: Path) -> None:
    position = follow(path).position
    os.truncate(path, 0)
    append(path, 3)

    assert drained(follow(path, position)) == [3]


def test_a_file_that_was_missing_when_the_last_agent_ended_is_all_new(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    position = follow(path).position
    append(path, 1)

    assert drained(follow(path, position)) == [1]


def test_a_directory_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        follow(tmp_path)


@pytest.fixture
def nobodys_directory() -> Iterator[Path]:
    """A directory of a user without privileges; that user's rights apply in the test."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o777)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    yield directory
    if is_root:
        os.seteuid(0)
    shutil.rmtree(directory)


def test_a_file_that_may_not_be_read_is_an_error_at_the_start(nobodys_directory: Path) -> None:
    path = nobodys_directory / "messages"
    path.touch(mode=0)

    with pytest.raises(PermissionError):
        follow(path)


def test_a_successor_that_may_not_be_read_yet_is_waited_for(nobodys_directory: Path) -> None:
    path = nobodys_directory / "messages"
    append(path, 1)
    log = follow(path)
    path.rename(path.with_name("messages.1"))
    append(path, 2)
    path.chmod(0)
    assert drained(log) == []

    path.chmod(0o600)

    assert drained(log) == [2]


def test_descriptors_are_given_back(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    log = follow(path)
    for number in range(20):
        path.rename(path.with_name(f"messages.{number}"))
        append(path, number)
        assert drained(log) == [number]

    log.close()

    assert len(os.listdir("/proc/self/fd")) == before


def is_current(log: LogFile, path: Path) -> bool:
    return log.position["inode"] == path.stat().st_ino


STEPS = st.lists(
    st.sampled_from(["write", "write half", "rotate", "rotate early", "read", "restart"]),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_no_line_is_missed_and_none_is_read_twice(tmp_path_factory, steps: list[str]) -> None:
    path = tmp_path_factory.mktemp("log") / "messages"
    path.touch()
    log = follow(path)
    writer = path.open("a", encoding="utf-8")  # as a syslog daemon, which keeps its file open
    written, seen, half = 0, [], ""
    for number, step in enumerate([*steps, "write", "read"]):
        if step.startswith("rotate"):  # a file that came and went unread is lost
            seen += drained(log) if not is_current(log, path) else []
            if not is_current(log, path):
                continue
        match step:
            case "write":
                written += 1
                writer.write(half or line(written))
                half = ""
            case "write half" if not half:
                whole = line(written + 1)
                writer.write(whole[:-5])
                half = whole[-5:]
            case "rotate" if not half:
                path.rename(path.with_name(f"messages.{number}"))
                writer.close()
                writer = path.open("a", encoding="utf-8")
            case "rotate early" if not half:  # the daemon is told one step later
                path.rename(path.with_name(f"messages.{number}"))
                path.touch()
                written += 1
                writer.write(line(written))
                writer.close()
                writer = path.open("a", encoding="utf-8")
            case "read":
                seen += drained(log)
            case "restart":
                seen += drained(log)
                position = log.position
                log.close()
                log = follow(path, position)
        writer.flush()
    writer.close()
    log.close()

    assert seen == list(range(1, written + 1))
