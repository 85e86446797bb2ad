"""Lines that Holdfast prints in a job, as its controller reads them in the logs of pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.notice_lines import (
    HANG,
    PRINTED,
    STRAGGLER,
    LoggedNotices,
    after_lines,
    checkpoint_line,
    notice_line,
)
from holdfast.kit.units import one_line

NONE = LoggedNotices()
TEXTS = st.text(st.characters(exclude_characters="\n"), min_size=1, max_size=200)


def shown(text: str) -> str:
    """Control characters that a job may write do not reach terminals."""
    return one_line(text, 1000)


@given(st.integers(1, 999_999), TEXTS, TEXTS)
def test_the_last_notice_of_each_kind_is_read(number: int, hang: str, straggler: str) -> None:
    lines = [notice_line(HANG, number, "earlier"), notice_line(HANG, number + 1, hang)]
    lines.append(notice_line(STRAGGLER, number, straggler))
    guard = [checkpoint_line(text) for text in (hang, straggler, hang)]

    assert after_lines(NONE, [*guard, *(f"{PRINTED}{one}" for one in lines)]) == LoggedNotices(
        hang=shown(f"round {number + 1}: {hang}"),
        straggler=shown(f"round {number}: {straggler}"),
        checkpoints=tuple(dict.fromkeys((shown(hang), shown(straggler)))),
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
    known = LoggedNotices(hang="h", straggler="s", checkpoints=("c",))

    assert after_lines(known, [line]) == known
