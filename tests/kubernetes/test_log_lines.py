"""Lines of logs, from bytes that come in any pieces and more than once."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kubernetes.jobs.log_lines import (
    LINE_LIMIT,
    PodLogLine,
    Position,
    Splitter,
    Stamp,
)

BEGAN = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)

stamps = st.builds(
    Stamp,
    st.integers(0, 3).map(lambda s: BEGAN + timedelta(seconds=s)),
    st.sampled_from([0, 1, 10**8, 999_999_999]),
)
logs = st.lists(stamps, max_size=12).map(
    lambda found: [PodLogLine(stamp, f"line {n}") for n, stamp in enumerate(sorted(found))]
)


def written(lines: list[PodLogLine]) -> bytes:
    return b"".join(
        f"{line.stamp.second:%Y-%m-%dT%H:%M:%S}.{line.stamp.nanosecond:09d}Z {line.text}\n".encode()
        for line in lines
    )


def split(*pieces: bytes) -> list[PodLogLine]:
    splitter = Splitter()
    return [line for piece in pieces for line in splitter.lines(piece)]


def at(text: str) -> Stamp:
    (line,) = split(f"{text} x\n".encode())
    return line.stamp


@given(logs, st.lists(st.integers(0, 500), max_size=9))
def test_lines_do_not_depend_on_the_pieces_in_which_they_come(lines, cuts):
    whole = written(lines)
    ends = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(ends)]

    assert split(*pieces) == lines


def test_a_line_counts_when_it_has_ended():
    assert split(b"2026-01-01T12:00:00Z a\n2026-01-01T12:00:00Z b") == [
        PodLogLine(Stamp(BEGAN, 0), "a")
    ]


@pytest.mark.parametrize("size", [LINE_LIMIT + 1, 50 * LINE_LIMIT])
def test_a_long_line_is_cut_and_the_next_is_whole(size: int):
    whole = b"2026-01-01T12:00:00Z " + b"x" * size + b"\n2026-01-01T12:00:00Z next\n"
    pieces = [whole[n : n + 1000] for n in range(0, len(whole), 1000)]

    first, second = split(*pieces)

    assert LINE_LIMIT <= len(first.text) < LINE_LIMIT + 40
    assert (split(whole), second.text) == ([first, second], "next")


def test_stamps_are_compared_as_times():
    assert at("2026-01-01T12:00:00Z") == at("2026-01-01T14:00:00.000000000+02:00")
    assert at("2026-01-01T12:00:00.5Z") == at("2026-01-01T12:00:00.500Z")
    assert at("2026-01-01T12:00:00.5Z") < at("2026-01-01T12:00:00.50000001Z")
    assert at("2026-01-01T12:00:00.9Z") < at("2026-01-01T12:00:01Z")


def test_text_is_kept_as_it_is():
    (line,) = split("2026-01-01T12:00:00Z  é {a: 1}\r\n".encode())
    (broken,) = split(b"2026-01-01T12:00:00Z \xff\n")
    (empty,) = split(b"2026-01-01T12:00:00Z \n")

    assert (line.text, broken.text, empty.text) == (" é {a: 1}", "�", "")


@pytest.mark.parametrize(
    "said", ["unable to retrieve container logs", "2026-13-01T12:00:00Z x", "2026-01-01 12:00:00 x"]
)
def test_what_has_no_stamp_is_not_of_the_log(said: str):
    splitter = Splitter()

    assert list(splitter.lines(f"{said}\n".encode())) == []
    assert splitter.has_foreign
    assert not splitter.has_lines


def test_an_empty_line_is_nothing():
    splitter = Splitter()

    assert list(splitter.lines(b"\n")) == []
    assert not splitter.has_foreign


@given(logs, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6))
def test_each_line_is_read_once_however_often_the_log_is_opened_and_breaks_off(lines, answers):
    position = Position()
    read: list[PodLogLine] = []
    known = 0
    for grown, breaks_after in [*answers, (12, 12)]:
        known = min(len(lines), max(known, grown))
        since = position.since
        answer = [one for one in lines[:known] if since is None or one.stamp.second >= since]
        position.opened()
        for line in answer[:breaks_after]:
            fresh = position.fresh([line])
            position.read(fresh)
            read += fresh

    assert read == lines


def test_lines_that_were_not_taken_are_read_again():
    lines = [PodLogLine(Stamp(BEGAN, n), f"{n}") for n in range(3)]
    position = Position()
    position.opened()
    position.read(position.fresh(lines[:1]))
    position.fresh(lines[1:])  # and the answer breaks off

    position.opened()

    assert position.fresh(lines) == lines[1:]


def test_a_clock_that_is_set_back_hides_no_line():
    position = Position()
    position.opened()
    late = PodLogLine(Stamp(BEGAN + timedelta(hours=1), 0), "before")
    position.read(position.fresh([late]))
    early = [PodLogLine(Stamp(BEGAN + timedelta(seconds=n), 0), f"{n}") for n in range(3)]

    assert position.fresh(early[:1]) == early[:1]
    position.read(early[:1])
    position.opened()

    assert position.since == BEGAN
    assert position.fresh(early) == early[1:]


def test_lines_slightly_out_of_order_are_not_read_twice():
    first, second = PodLogLine(Stamp(BEGAN, 9), "a"), PodLogLine(Stamp(BEGAN, 5), "b")
    position = Position()
    position.opened()
    position.read(position.fresh([first, second]))

    position.opened()

    assert position.fresh([first, second]) == []


def test_lines_out_of_order_over_the_turn_of_a_second_are_not_read_twice():
    first = PodLogLine(Stamp(BEGAN + timedelta(seconds=1), 0), "a")
    second = PodLogLine(Stamp(BEGAN, 999_999_999), "b")
    position = Position()
    position.opened()
    position.read(position.fresh([first, second]))

    position.opened()

    assert position.since == first.stamp.second
    assert position.fresh([first]) == []


def test_after_the_first_new_line_of_an_answer_all_are_new():
    old, new, late = (PodLogLine(Stamp(BEGAN, n), f"{n}") for n in (5, 9, 3))
    position = Position()
    position.opened()
    position.read(position.fresh([old]))

    position.opened()

    assert position.fresh([old, new, late]) == [new, late]
    assert position.fresh([late]) == [late]


@given(logs, st.integers(0, 12))
def test_a_position_is_stored_as_text(lines, read):
    position = Position()
    position.read(lines[:read])
    again = Position(position.cursor)
    for one in (position, again):
        one.opened()

    assert again.cursor == position.cursor
    assert again.fresh(lines) == position.fresh(lines) == lines[read:]


@pytest.mark.parametrize(
    "cursor", ["", "0", "x 1", "2026-99-01T12:00:00Z 1", "2026-01-01T12:00:00Z"]
)
def test_a_position_that_cannot_be_parsed_is_the_beginning(cursor):
    assert Position(cursor).since is None
