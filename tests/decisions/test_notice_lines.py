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
    slow_host,
)
from holdfast.decisions.stragglers import Straggler
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


HOSTS = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True)


@given(HOSTS, st.integers(1, 4_194_304), st.integers(0, 0xFFFFFF), st.integers(0, 99_999))
def test_the_host_of_a_straggler_is_read_from_the_name_of_its_launcher(
    host: str, pid: int, token: int, rank: int
) -> None:
    slow = Straggler(
        rank=rank,
        node=f"{host}-{pid}-{token:06x}",
        factor=1.5,
        wait=0.1,
        others_wait=0.4,
        windows=4,
    )
    line = f"{PRINTED}{notice_line(STRAGGLER, 1, slow.text)}"

    assert slow_host(after_lines(NONE, [line]).straggler) == host


@given(TEXTS)
def test_any_other_text_names_no_host(text: str) -> None:
    assert slow_host(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "round 1: rank 5 on a is slow: x",
        "round 1: rank 5 on a-7-12345g is slow: x",
        "round 1: rank 5 on a b-7-123456 is slow: x",
        "round 1: rank x on a-7-123456 is slow: x",
        f"round 1: rank 5 on {'a' * 254}-7-123456 is slow: x",
    ],
)
def test_a_line_without_a_launcher_names_no_host(text: str) -> None:
    assert slow_host(text) == ""
