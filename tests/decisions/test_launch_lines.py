"""Lines of the launchers of a job, as its controller reads them in the logs of pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.launch_lines import (
    HANG,
    PRINTED,
    STRAGGLER,
    LaunchNotices,
    after_lines,
    notice_line,
)

NONE = LaunchNotices()
TEXTS = st.text(st.characters(exclude_characters="\n"), min_size=1, max_size=200)


@given(st.integers(1, 999_999), TEXTS, TEXTS)
def test_the_last_notice_of_each_kind_is_read(number: int, hang: str, straggler: str) -> None:
    lines = [notice_line(HANG, number, "earlier"), notice_line(HANG, number + 1, hang)]
    lines.append(notice_line(STRAGGLER, number, straggler))

    assert after_lines(NONE, [f"{PRINTED}{one}" for one in lines]) == LaunchNotices(
        hang=f"round {number + 1}: {hang}", straggler=f"round {number}: {straggler}"
    )


@pytest.mark.parametrize(
    "line",
    [
        "HangSuspected: round 1: printed by nobody",
        "a quote of holdfast: HangSuspected: round 1: x",
        "holdfast: HangSuspected: x",
        "holdfast: RankFailed: round 1: rank 1 on a: exit code 1",
        f"{PRINTED}{notice_line(HANG, 1, 'x' * 6000)}",
        "",
    ],
)
def test_other_lines_change_nothing(line: str) -> None:
    known = LaunchNotices(hang="h", straggler="s")

    assert after_lines(known, [line]) == known
