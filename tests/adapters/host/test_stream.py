import os
import stat
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host.stream import BACKOFF, LONGEST, CommandStream

TIMEOUT_S = 90.0


def script(folder: Path, text: str, name: str = "tool") -> Callable[[], list[str]]:
    path = folder / name
    path.write_text(f"#!{sys.executable} -S\nimport os, sys, time\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return lambda: [str(path)]


def read_until(stream: CommandStream, is_enough: Callable[[list[bytes]], object]) -> list[bytes]:
    lines: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not is_enough(lines):
        assert time.monotonic() < deadline, (lines, stream.error)
        lines += stream.read()
        time.sleep(0.002)
    return lines


def test_lines_are_given_whole_whatever_the_writes(tmp_path: Path) -> None:
    stream = CommandStream(
        script(
            tmp_path,
            "for part in ('a', 'b\\nc', '\\n', 'd'): os.write(1, part.encode()); time.sleep(0.02)\n"
            "time.sleep(60)",
        )
    )

    assert read_until(stream, lambda lines: len(lines) == 2) == [b"ab", b"c"]
    assert stream.read() == []
    assert stream.error == ""
    stream.close()


def test_what_is_read_next_to_the_end_is_not_lost_and_a_half_line_is_left_out(
    tmp_path: Path,
) -> None:
    stream = CommandStream(script(tmp_path, "os.write(1, b'a\\nhalf'); sys.exit('why it ended')"))

    lines = read_until(stream, lambda _: stream.error)

    assert lines == [b"a"]
    assert stream.error == "tool ended with 1: why it ended"
    assert stream.fileno() is None
    stream.close()


def test_a_command_that_ended_is_started_again_after_a_pause_and_all_is_well(
    tmp_path: Path,
) -> None:
    starts = tmp_path / "starts"
    stream = CommandStream(
        script(
            tmp_path,
            f"open({str(starts)!r}, 'a').write('x')\n"
            f"if os.path.getsize({str(starts)!r}) == 1: sys.exit(3)\n"
            "print('again', flush=True); time.sleep(60)",
        )
    )

    assert read_until(stream, lambda lines: lines) == [b"again"]
    assert stream.error == ""
    assert starts.read_text(encoding="utf-8") == "xx"
    stream.close()


def test_a_command_that_fails_at_once_is_not_started_at_every_look(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    stream = CommandStream(script(tmp_path, f"open({str(starts)!r}, 'a').write('x'); sys.exit(1)"))

    read_until(stream, lambda _: stream.error)
    until = time.monotonic() + BACKOFF.first.total_seconds() / 2
    while time.monotonic() < until:
        assert stream.read() == []
        time.sleep(0.01)

    assert starts.read_text(encoding="utf-8") == "x"
    stream.close()


def test_a_command_that_is_missing_is_an_error_and_no_exception(tmp_path: Path) -> None:
    stream = CommandStream(lambda: [str(tmp_path / "none")])

    assert stream.read() == []
    assert stream.error == "none cannot be started: No such file or directory"
    stream.close()


def test_a_command_that_falls_silent_is_ended(tmp_path: Path) -> None:
    stream = CommandStream(
        script(tmp_path, "print(os.getpid(), flush=True); time.sleep(60)"),
        silence=timedelta(seconds=0.3),
    )

    [pid] = read_until(stream, lambda _: stream.error)

    assert stream.error == "tool wrote no output for 0.3 s"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    stream.close()


def test_a_line_without_end_takes_bounded_memory_and_hides_no_other(tmp_path: Path) -> None:
    stream = CommandStream(
        script(
            tmp_path,
            f"os.write(1, b'a\\n')\nfor _ in range(40): os.write(1, b'x' * {LONGEST // 8})\n"
            "os.write(1, b'\\nb\\n'); time.sleep(60)",
        )
    )

    assert read_until(stream, lambda lines: b"b" in lines) == [b"a", b"b"]
    stream.close()


def test_nothing_is_left_of_a_stream_that_is_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    stream = CommandStream(script(tmp_path, "print(os.getpid(), flush=True); time.sleep(60)"))
    [pid] = read_until(stream, lambda lines: lines)

    stream.close()

    assert stream.read() == []
    assert stream.fileno() is None

    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
