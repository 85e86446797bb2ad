"""Lines are kept in private files whose total size is bounded."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.kit.rotated_lines import RotatedLines
from holdfast.model.errors import BackendError


def test_lines_are_appended_to_a_private_file(tmp_path) -> None:
    path = tmp_path / "log"
    for text in ("one", "two"):
        RotatedLines(path).append(text)

    assert path.read_text(encoding="utf-8") == "one\ntwo\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_full_files_are_renamed_and_the_oldest_is_removed(tmp_path) -> None:
    path = tmp_path / "log"
    lines = RotatedLines(path, size=20, files=3)
    for number in range(10):
        lines.append(f"line {number:03}")  # 9 bytes: two in a file

    found = {one.name: one.read_text(encoding="utf-8").split("\n") for one in tmp_path.iterdir()}
    assert found == {
        "log": ["line 008", "line 009", ""],
        "log.1": ["line 006", "line 007", ""],
        "log.2": ["line 004", "line 005", ""],
    }
    assert {one.stat().st_mode & 0o777 for one in tmp_path.iterdir()} == {0o600}


def test_a_line_of_exactly_the_rest_fits(tmp_path) -> None:
    path = tmp_path / "log"
    lines = RotatedLines(path, size=20)
    lines.append("a" * 9)
    lines.append("b" * 9)
    lines.append("c")

    assert (tmp_path / "log.1").stat().st_size == 20
    assert path.read_text(encoding="utf-8") == "c\n"


def test_a_line_that_was_cut_off_does_not_invalidate_the_next(tmp_path) -> None:
    path = tmp_path / "log"
    path.touch(0o600)
    path.write_text("cut", encoding="utf-8")
    RotatedLines(path).append("next")

    assert path.read_text(encoding="utf-8") == "cut\nnext\n"


def test_lines_of_many_threads_are_whole(tmp_path) -> None:
    path = tmp_path / "log"
    lines = RotatedLines(path, size=2000, files=10)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: lines.append(f"{number:099}"), range(100)))

    found = [line for one in tmp_path.iterdir() for line in one.read_text("utf-8").splitlines()]
    assert sorted(found) == [f"{number:099}" for number in range(100)]


def test_no_link_no_pipe_and_no_file_of_others_is_written(tmp_path) -> None:
    target, link, pipe, loose = (tmp_path / name for name in ("target", "link", "pipe", "loose"))
    link.symlink_to(target)
    os.mkfifo(pipe, 0o600)
    loose.touch(0o644)

    for path in (link, pipe, loose, tmp_path / "none" / "log", tmp_path):
        for call in (RotatedLines(path).check, lambda path=path: RotatedLines(path).append("x")):
            with pytest.raises(BackendError, match=str(path)):
                call()
    assert not target.exists()
    assert not loose.stat().st_size


def test_the_last_lines_are_those_of_the_newest_files(tmp_path) -> None:
    lines = RotatedLines(tmp_path / "log", size=20, files=3)
    assert lines.last(5) == []
    for number in range(7):
        lines.append(f"line {number:03}")

    assert lines.last(1) == ["line 006"]
    assert lines.last(9) == ["line 004", "line 005", "line 006"]  # of two files
    with (tmp_path / "log").open("a") as file:
        file.write("being writ")
    assert lines.last(1) == ["line 006"]


def test_of_a_long_file_the_end_is_read(tmp_path) -> None:
    lines = RotatedLines(tmp_path / "log", size=1 << 22)
    for number in range(3):
        lines.append(f"{number}" * 500_000)

    assert [line[0] for line in lines.last(9)] == ["1", "2"]
