import contextlib
import json
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kit.bounded_files import (
    MAX_DEPTH,
    open_regular,
    parse_json,
    read_bounded,
    read_end,
)

LIMIT = 64


def fifo(path):
    os.mkfifo(path)


def link(path):
    path.with_name("target").write_text("{}", encoding="utf-8")
    path.symlink_to("target")


def listening(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


@pytest.mark.attack
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (fifo, "a FIFO"),
        (link, "a symbolic link"),
        (listening, "a socket"),
        (lambda path: path.mkdir(), "a directory"),
        (lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
    ],
)
@pytest.mark.parametrize("read", [read_bounded, read_end])
def test_only_regular_files_are_read_and_nothing_else_blocks(tmp_path, make, kind, read) -> None:
    path = tmp_path / "report.json"
    make(path)

    with pytest.raises(OSError, match="expected a regular file") as refused:
        read(path, LIMIT)

    assert refused.value.strerror == f"is {kind}, expected a regular file"
    assert refused.value.filename == str(path)


def test_a_link_is_followed_only_on_request_and_only_to_a_regular_file(tmp_path) -> None:
    link(tmp_path / "link")
    with open_regular(tmp_path / "link", follow_links=True) as (handle, status):
        assert os.read(handle, status.st_size) == b"{}"

    (tmp_path / "zero").symlink_to("/dev/zero")
    with (
        pytest.raises(OSError, match="a character device"),
        open_regular(tmp_path / "zero", follow_links=True),
    ):
        pass


@pytest.mark.parametrize("size", [0, LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT])
def test_a_file_is_read_whole_or_refused_for_its_size(tmp_path, size) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 3 + b"x" * size)
    data = path.read_bytes()[-size:] if size else b""
    path.write_bytes(data)

    assert read_end(path, LIMIT) == data[-LIMIT:]
    if size <= LIMIT:
        assert read_bounded(path, LIMIT) == data
    else:
        with pytest.raises(OSError, match=f"larger than {LIMIT} bytes"):
            read_bounded(path, LIMIT)


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(documents)
def test_json_of_bounded_depth_is_read_as_it_was_written(value) -> None:
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize("opening", ["[", '{"a":', '[1, "\\"[", '])
@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 100_000])
def test_nesting_is_bounded(opening, depth) -> None:
    closing = "}" if opening.startswith("{") else "]"
    text = opening * depth + "1" + closing * depth

    if depth > MAX_DEPTH:
        with pytest.raises(ValueError, match="nested deeper"):
            parse_json(text)
    else:
        parse_json(text)


@given(st.text('[]{}",\\a:', max_size=300))
def test_no_text_costs_more_than_an_error(text) -> None:
    for one in (text, text * 50):
        with contextlib.suppress(ValueError):
            parse_json(one)


def test_brackets_in_strings_do_not_nest() -> None:
    text = json.dumps(["[{" * 1000, '"\\[' * 1000])
    assert parse_json(text) == json.loads(text)
