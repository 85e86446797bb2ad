"""Records of moved checkpoints in the logs of pods, which any program can write."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.notice_lines import LoggedNotices, after_lines
from holdfast.decisions.set_aside_records import (
    LOGGED_LIMIT,
    RECORD_LIMIT,
    after_moved_lines,
    moved_line,
)
from holdfast.model.set_aside import SetAside

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = st.text(max_size=5000)


def moved(name: str = "step_3", why: str = "damaged: x") -> SetAside:
    return SetAside(name=name, path=f"/ckpt.set-aside/{name}", why=why, at=NOW, state="damaged")


@given(st.lists(st.builds(moved, st.text(max_size=50)), max_size=5), st.lists(TEXTS, max_size=5))
def test_each_move_is_read_once_wherever_it_is_in_the_log(moves, others) -> None:
    lines = [*others, *map(moved_line, moves), *others, *map(moved_line, moves)]

    assert after_moved_lines((), lines) == tuple(dict.fromkeys(moves))


@given(TEXTS, TEXTS)
def test_a_line_is_short_enough_for_the_reader_of_logs_or_is_not_printed(name, why) -> None:
    line = moved_line(moved(name, why))

    assert "\n" not in line
    assert len(line.encode()) <= RECORD_LIMIT + 100
    assert len(after_moved_lines((), [line])) == bool(line)
    assert bool(line) or len(name.encode()) > 200


@pytest.mark.parametrize(
    "line",
    [
        "holdfast: CheckpointMoved: ",
        "holdfast: CheckpointMoved: {",
        'holdfast: CheckpointMoved: {"name": 1}',
        f"a quote of {moved_line(moved())}",
        "",
    ],
)
def test_other_lines_change_nothing(line: str) -> None:
    known = (moved("step_2"),)

    assert after_moved_lines(known, [line]) == known


def test_the_number_of_records_of_an_attempt_is_bounded() -> None:
    lines = [moved_line(moved(f"step_{number}")) for number in range(2 * LOGGED_LIMIT)]

    found = after_moved_lines((), lines)

    assert [one.name for one in found] == [f"step_{number}" for number in range(LOGGED_LIMIT)]


def test_a_record_is_no_notice_for_people() -> None:
    assert after_lines(LoggedNotices(), [moved_line(moved())]) == LoggedNotices()
