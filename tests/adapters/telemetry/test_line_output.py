import os
from pathlib import Path

import pytest

from holdfast.adapters.telemetry.line_output import KEPT_BYTES, LineOutput
from holdfast.model.errors import ConfigError


class Said(list[str]):
    def __call__(self, message: str) -> None:
        self.append(message)


@pytest.fixture
def said() -> Said:
    return Said()


def test_lines_are_appended(tmp_path: Path, said: Said) -> None:
    path = tmp_path / "agent.log"
    path.write_text("before\n", encoding="utf-8")

    output = LineOutput(path, said)
    output.write(["a", "ü"])
    output.close()

    assert path.read_text(encoding="utf-8") == "before\na\nü\n"
    assert said == []


def test_a_file_that_was_rotated_away_is_made_anew(tmp_path: Path, said: Said) -> None:
    path = tmp_path / "agent.log"
    output = LineOutput(path, said)
    output.write(["a"])
    path.rename(tmp_path / "agent.log.1")

    output.write(["b"])
    output.close()

    assert path.read_text(encoding="utf-8") == "b\n"
    assert (tmp_path / "agent.log.1").read_text(encoding="utf-8") == "a\n"


def test_a_directory_that_is_missing_is_bad_input(tmp_path: Path, said: Said) -> None:
    with pytest.raises(ConfigError, match=r"cannot write the log to .*/none/agent.log: No such"):
        LineOutput(tmp_path / "none" / "agent.log", said)


@pytest.fixture
def pipe(tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield path, reader
    os.close(reader)


def drain(reader: int) -> bytes:
    data = b""
    while True:
        try:
            piece = os.read(reader, 65536)
        except BlockingIOError:
            return data
        if not piece:
            return data
        data += piece


def test_a_reader_that_does_not_read_keeps_nobody_waiting_and_misses_nothing(
    pipe: tuple[Path, int], said: Said
) -> None:
    path, reader = pipe
    output = LineOutput(path, said)
    lines = [f"{number:05} {'x' * 5000}" for number in range(60)]

    for line in lines:
        output.write([line])
    data = b""
    for _ in range(60):
        data += drain(reader)
        output.flush()
    output.close()

    assert (data + drain(reader)).decode().splitlines() == lines
    assert len(said) == 1
    assert "the pipe is full; retrying" in said[0]


def test_what_is_kept_is_bounded_and_only_whole_lines_are_lost(
    pipe: tuple[Path, int], said: Said
) -> None:
    path, reader = pipe
    output = LineOutput(path, said)
    lines = [f"{number:05} {'x' * 9000}" for number in range(2 * KEPT_BYTES // 9000)]

    for line in lines:
        output.write([line])
    data = b""
    for _ in range(len(lines)):
        data += drain(reader)
        output.flush()

    arrived = (data + drain(reader)).decode().splitlines()
    assert set(arrived) < set(lines)
    assert arrived == sorted(arrived)
    assert arrived[-1] == lines[-1]
    assert output.lost == len(lines) - len(arrived)
    assert KEPT_BYTES * 0.9 < len(data) < KEPT_BYTES * 1.2
    assert "1 log lines dropped" in said[1]


def test_a_full_disk_is_reported_once_and_tried_again(tmp_path: Path, said: Said) -> None:
    path = tmp_path / "agent.log"
    path.symlink_to("/dev/full")
    output = LineOutput(path, said)

    output.write(["a"])
    output.flush()
    path.unlink()
    output.write(["b"])
    output.close()

    assert path.read_text(encoding="utf-8") == "a\nb\n"
    assert said == [
        f"cannot write the log to {path}: No space left on device; retrying",
    ]


def test_standard_output_stays_open(capfd: pytest.CaptureFixture[str], said: Said) -> None:
    output = LineOutput(None, said)

    output.write(["a"])
    output.close()

    os.fstat(1)
    assert capfd.readouterr().out == "a\n"
