"""How many spare nodes are advised."""

import random
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.decisions.spares import advised_spares

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("nodes", "rate", "repair", "spares"),
    [
        (0, 6.5, DAY, 0),
        (4, 6.5, timedelta(minutes=30), 1),
        (2048, 6.5, timedelta(minutes=30), 2),
        (2048, 3.8, timedelta(hours=24), 15),
        (1000, 1.0, DAY, 4),  # a mean of 1: 99.6 % of the time at most 4
        (100, 0.0, DAY, 1),
        (2, 1000.0, 10 * DAY, 2),
    ],
)
def test_the_spares_cover_what_is_usual(nodes, rate, repair, spares) -> None:
    assert advised_spares(nodes, rate, repair) == spares


def test_they_suffice_in_99_of_100_moments_and_one_less_would_not() -> None:
    nodes, rate, repair = 1000, 6.5, timedelta(hours=12)
    advised = advised_spares(nodes, rate, repair)
    dice = random.Random(1)
    mean = nodes * rate / 1000 * 0.5
    down = [sum(dice.random() < mean / 5000 for _ in range(5000)) for _ in range(400)]
    assert sum(one <= advised for one in down) / len(down) >= 0.97
    assert sum(one <= advised - 3 for one in down) / len(down) < 0.99


@example(100_001, 1.4826, timedelta(days=5))
@given(st.integers(0, 200_000), st.floats(0, 1000), st.timedeltas(timedelta(0), 30 * DAY))
def test_more_of_anything_never_needs_fewer(nodes, rate, repair) -> None:
    spares = advised_spares(nodes, rate, repair)

    assert spares >= min(nodes, 1)
    assert advised_spares(nodes + 1, rate, repair) >= spares
    assert advised_spares(nodes, rate + 1, repair) >= spares


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        advised_spares(-1, 6.5, DAY)
