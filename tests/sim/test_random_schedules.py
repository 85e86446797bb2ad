"""Random worlds under all laws, from seeds."""

import pytest
from effort import examples

from tests.simulation.fuzz import judge_seeds
from tests.simulation.schedules import random_scenario

SCHEDULES = examples(2000)
CHUNK = min(100, SCHEDULES)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_every_law_holds_in_every_schedule(first: int) -> None:
    assert judge_seeds(range(first, first + CHUNK)) == CHUNK


def test_a_seed_gives_the_same_scenario_for_ever() -> None:
    assert random_scenario(7) == random_scenario(7)
    assert random_scenario(7) != random_scenario(8)
