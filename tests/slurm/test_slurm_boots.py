"""A slurmd tells the time of its machine's boot anew, and not to the second."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.slurm.nodes.boots import is_other_boot, is_other_slurmd

BOOT = datetime(2026, 11, 22, 2, 26, 29)  # noqa: DTZ001 - as Slurm tells it


def slurmd(boot: datetime, started: str = "2026-11-22T03:40:38") -> str:
    return f"{boot:%FT%T}/{started}"


@pytest.mark.parametrize(
    ("seconds", "is_other"),
    [(0, False), (1, False), (-1, False), (5, False), (-5, False), (6, True), (-6, True)],
)
def test_the_same_boot_is_reported_to_a_few_seconds(seconds: int, is_other: bool) -> None:
    now = slurmd(BOOT + timedelta(seconds=seconds))

    assert is_other_boot(now, slurmd(BOOT)) is is_other
    assert is_other_slurmd(now, slurmd(BOOT)) is is_other


def test_a_slurmd_that_began_anew_is_another_in_the_same_boot() -> None:
    again = slurmd(BOOT + timedelta(seconds=1), "2026-11-22T03:40:39")

    assert is_other_slurmd(again, slurmd(BOOT))
    assert not is_other_boot(again, slurmd(BOOT))


@pytest.mark.parametrize("unknown", ["", "/"])
def test_what_slurm_does_not_know_is_no_other(unknown: str) -> None:
    for now, before in ((unknown, slurmd(BOOT)), (slurmd(BOOT), unknown)):
        assert not is_other_boot(now, before)
        assert not is_other_slurmd(now, before)


def test_times_that_are_written_in_another_way_are_compared_as_they_are() -> None:
    assert not is_other_boot("21 Nov 02:26/x", "21 Nov 02:26/x")
    assert is_other_boot("22 Nov 02:26/x", "21 Nov 02:26/x")


@given(st.integers(-1_000_000, 1_000_000), st.booleans())
def test_which_is_first_does_not_matter(seconds: int, is_same_start: bool) -> None:
    one = slurmd(BOOT)
    other = slurmd(BOOT + timedelta(seconds=seconds), one.partition("/")[2] * is_same_start)

    assert is_other_boot(one, other) is is_other_boot(other, one) is (abs(seconds) > 5)
    assert is_other_slurmd(one, other) is is_other_slurmd(other, one)
