import re
from pathlib import Path

import pytest

from holdfast.adapters.telemetry.log_follower import BLOCK, LogFollower
from holdfast.model.errors import BackendError


class Log:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "agent.log"
        self.position = folder / ".position"

    def write(self, text: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)

    def follow(self) -> LogFollower:
        return LogFollower(self.path, self.position)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def everything(follower: LogFollower) -> list[str]:
    found: list[str] = []
    while lines := follower.read():
        found += lines
    return found


def test_lines_are_read_when_they_are_whole(log: Log) -> None:
    follower = log.follow()
    assert follower.read() == []

    log.write("a\nb")
    assert follower.read() == ["a"]
    assert follower.read() == []
    log.write("b\n\nü\u2028v\n")
    assert follower.read() == ["bb", "ü\u2028v"]
    follower.close()


def test_what_was_committed_is_not_read_again_and_the_rest_is(log: Log) -> None:
    log.write("a\n")
    first = log.follow()
    first.read()
    first.commit()
    log.write("b\n")
    first.read()
    first.close()

    again = log.follow()
    assert again.read() == ["b"]
    again.close()


def test_a_rotated_log_is_read_to_its_end_first(log: Log) -> None:
    log.write("a\n")
    follower = log.follow()
    follower.read()
    log.write("b\n")
    log.path.rename(log.path.with_suffix(".log.1"))
    log.write("c\n")

    assert everything(follower) == ["b", "c"]
    follower.close()


def test_a_log_that_was_rotated_while_nobody_followed_is_read_to_its_end_first(log: Log) -> None:
    log.write("a\n")
    follower = log.follow()
    follower.read()
    follower.commit()
    follower.close()
    log.write("b\n")
    log.path.rename(f"{log.path}.1")
    log.write("c\n")

    again = log.follow()
    assert everything(again) == ["b", "c"]
    again.close()


def test_a_log_whose_earlier_part_is_gone_is_read_from_its_beginning(log: Log) -> None:
    log.write("a\n")
    log.position.write_text('{"inode": 1, "offset": 1}', encoding="utf-8")

    follower = log.follow()
    assert follower.read() == ["a"]
    follower.close()


def test_a_log_that_was_emptied_is_read_from_its_beginning(log: Log) -> None:
    log.write("aaaa\n")
    follower = log.follow()
    follower.read()
    log.path.write_text("b\n", encoding="utf-8")

    assert follower.read() == ["b"]
    follower.close()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"inode": "x", "offset": 0}', "\x00"])
def test_a_position_that_cannot_be_read_is_the_beginning(log: Log, text: str) -> None:
    log.write("a\n")
    log.position.write_text(text, encoding="utf-8")

    follower = log.follow()
    assert follower.read() == ["a"]
    follower.close()


def test_much_is_read_in_bounded_blocks_and_an_endless_line_in_parts(log: Log) -> None:
    lines = [f"{number:04} {'x' * 995}" for number in range(2 * BLOCK // 1000)]
    log.write("\n".join(lines) + "\n" + "y" * (2 * BLOCK) + "\n")
    follower = log.follow()

    first = follower.read()
    assert sum(map(len, first)) <= BLOCK
    rest = everything(follower)
    follower.close()

    assert [*first, *rest][: len(lines)] == lines
    assert "".join([*first, *rest][len(lines) :]) == "y" * (2 * BLOCK)


def test_a_log_that_cannot_be_read_is_named(log: Log) -> None:
    log.path.mkdir()

    with pytest.raises(BackendError, match=re.escape(f"cannot read {log.path}: Is a directory")):
        log.follow().read()
