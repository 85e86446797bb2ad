import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kit.quota import Quota

percents = st.integers(0, 10000).map(lambda hundredths: hundredths / 100)
quotas = st.integers(0, 10**6).map(lambda count: Quota(count=count)) | percents.map(
    lambda percent: Quota(percent=percent)
)


@pytest.mark.parametrize(
    ("value", "quota"),
    [
        (3, Quota(count=3)),
        ("3", Quota(count=3)),
        (" 3 ", Quota(count=3)),
        (0, Quota(count=0)),
        ("20%", Quota(percent=20)),
        ("20 %", Quota(percent=20)),
        ("12.5%", Quota(percent=12.5)),
        ("0%", Quota(percent=0)),
        ("100%", Quota(percent=100)),
    ],
)
def test_counts_and_percentages_are_read(value: object, quota: Quota) -> None:
    assert Quota.parse(value) == quota


@pytest.mark.parametrize("value", ["", "%", "2.5", 2.5, True, None, "a few", "-1", "20%%", []])
def test_anything_else_is_rejected(value: object) -> None:
    with pytest.raises(ValueError, match="neither a count such as 3 nor a percentage such as 20%"):
        Quota.parse(value)


def test_a_negative_count_and_a_percentage_above_100_are_rejected() -> None:
    with pytest.raises(ValueError, match="0 or more, got -1"):
        Quota.parse(-1)
    with pytest.raises(ValueError, match="from 0 to 100, got 101"):
        Quota.parse("101%")
    with pytest.raises(ValueError, match="from 0 to 100"):
        Quota(percent=math.nan)


@pytest.mark.parametrize("arguments", [{}, {"count": 1, "percent": 1.0}])
def test_a_quota_is_one_of_both(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="either a count or a percentage"):
        Quota(**arguments)


@pytest.mark.parametrize(
    ("quota", "whole", "part"),
    [
        (Quota(percent=20), 0, 0),
        (Quota(percent=20), 1, 1),
        (Quota(percent=20), 5, 1),
        (Quota(percent=20), 6, 2),
        (Quota(percent=0), 5, 0),
        (Quota(percent=100), 5, 5),
        (Quota(percent=1.1), 1000, 11),
        (Quota(count=3), 1, 3),
    ],
)
def test_a_percentage_is_rounded_up_and_a_count_is_itself(
    quota: Quota, whole: int, part: int
) -> None:
    assert quota.of(whole) == part


@given(percents, st.integers(0, 10**6))
def test_a_percentage_is_the_least_whole_number_that_covers_its_share(
    percent: float, whole: int
) -> None:
    part = Quota(percent=percent).of(whole)

    share = Fraction(str(percent)) * whole / 100
    assert share <= part < share + 1


@given(quotas)
def test_a_quota_reads_back_from_its_text(quota: Quota) -> None:
    assert Quota.parse(str(quota)) == quota
