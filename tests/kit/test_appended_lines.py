"""Lines that are appended to a file, also when it is truncated or replaced."""

import os
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast.kit.appended_lines import CHUNK_BYTES, AppendedLines

TEXT = st.binary(max_size=20).map(lambda data: re.sub(rb"[\r\n\0]", b"", data))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@given(st.lists(TEXT, max_size=10), st.lists(st.integers(0, 30), max_size=10))
def test_each_line_is_read_once_however_it_is_written(tmp_path_factory, lines, sizes) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    reader, data, found = AppendedLines(path), b"".join(line + b"\n" for line in lines), []
    for size in sizes:
        append(path, data[:size])
        data = data[size:]
        found += reader.read()
    append(path, data)
    found += reader.read()

    assert found == lines
    assert reader.read() == []


def test_what_was_there_before_is_not_read_if_so_requested(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, b"old\n")
    reader = AppendedLines(path, offset=4)
    append(path, b"new\n")

    assert reader.read() == [b"new"]


def test_a_truncated_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, b"one\ntwo\nhalf")
    reader = AppendedLines(path)
    assert reader.read() == [b"one", b"two"]

    os.truncate(path, 0)
    append(path, b"three\n")

    assert reader.read() == [b"three"]


def test_the_hole_before_a_writer_that_does_not_append_is_no_part_of_its_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    with path.open("wb", buffering=0) as file:
        file.write(b"one\n" * 1000)
        reader = AppendedLines(path)
        assert len(reader.read()) == 1000

        os.truncate(path, 0)
        assert reader.read() == []
        file.write(b"two")
        assert reader.read() == []
        file.write(b" three\n")

    assert path.stat().st_size > 4000
    assert reader.read() == [b"two three"]


def test_a_log_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, b"one\n")
    reader = AppendedLines(path)
    assert reader.read() == [b"one"]

    path.rename(tmp_path / "log.1")
    assert reader.read() == []
    append(path, b"a longer line than before\n")

    assert reader.read() == [b"a longer line than before"]


def test_a_link_is_followed_only_if_so_requested(tmp_path: Path) -> None:
    path, link = tmp_path / "log", tmp_path / "link"
    link.symlink_to(path)
    append(path, b"one\n")

    assert AppendedLines(link).read() == []
    assert AppendedLines(link, follow_links=True).read() == [b"one"]


def test_a_progress_bar_has_lines_and_a_long_line_costs_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, b"1%\r2%\r" + b"x" * (3 * CHUNK_BYTES) + b"end\n")
    reader, found = AppendedLines(path), []
    for _ in range(5):
        found += reader.read()

    assert found[:2] == [b"1%", b"2%"]
    assert found[2].endswith(b"end")
    assert len(found[2]) <= 2 * CHUNK_BYTES
