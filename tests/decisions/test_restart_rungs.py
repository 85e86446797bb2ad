from datetime import UTC, datetime, timedelta

import pytest

from holdfast.decisions.exit_meanings import EXIT_MEANINGS, ExitMeaning, parse_exit_meanings
from holdfast.decisions.restart_rungs import (
    Failure,
    Restart,
    RestartBudget,
    Rung,
    choose_rung,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
BUDGET = RestartBudget(in_place=2, period=HOUR, exchanges=1, total=5)
CRASH = Failure(launcher="a", text="exit code 1")
LOST = Failure(launcher="a", text="lost", is_lost=True)


def past(rung: Rung, ago: timedelta = timedelta(minutes=1), launcher: str = "b") -> Restart:
    return Restart(at=NOW - ago, rung=rung, launcher=launcher)


def rung(failure: Failure, *restarts: Restart, spares: int = 0) -> Rung:
    return choose_rung(failure, restarts, spares, BUDGET, NOW).rung


def test_a_crash_restarts_in_place_within_its_budget() -> None:
    once = past(Rung.IN_PLACE)

    assert rung(CRASH) is Rung.IN_PLACE
    assert rung(CRASH, once) is Rung.IN_PLACE
    assert rung(CRASH, once, once) is Rung.FAIL


def test_restarts_in_place_count_within_the_period() -> None:
    at_end, inside = past(Rung.IN_PLACE, HOUR), past(Rung.IN_PLACE, HOUR - timedelta.resolution)

    assert rung(CRASH, at_end, inside) is Rung.IN_PLACE
    assert rung(CRASH, inside, inside) is Rung.FAIL


def test_a_lost_node_is_exchanged_by_a_spare_if_there_is_one() -> None:
    assert rung(LOST, spares=1) is Rung.SPARE
    assert rung(LOST) is Rung.EXCHANGE
    assert rung(LOST, past(Rung.SPARE), spares=1) is Rung.FAIL


def test_the_whole_job_restarts_only_if_that_budget_is_left() -> None:
    budget = RestartBudget(in_place=0, job_restarts=1)

    assert choose_rung(CRASH, (), 0, budget, NOW).rung is Rung.WHOLE_JOB


def test_the_total_bounds_every_restart() -> None:
    old = past(Rung.IN_PLACE, 2 * HOUR)

    assert rung(CRASH, *[old] * 4) is Rung.IN_PLACE
    assert rung(CRASH, *[old] * 5) is Rung.FAIL


def test_a_repeat_offender_is_exchanged_by_a_spare() -> None:
    own = past(Rung.IN_PLACE, 2 * HOUR, launcher="a")
    other = past(Rung.IN_PLACE, 2 * HOUR)

    assert rung(CRASH, own, own, spares=1) is Rung.SPARE
    assert rung(CRASH, own, other, spares=1) is Rung.IN_PLACE
    assert rung(CRASH, own, own) is Rung.IN_PLACE
    assert rung(CRASH, own, spares=1) is Rung.IN_PLACE


def test_exit_codes_with_a_meaning() -> None:
    stop = Failure(launcher="a", code=93, meaning=EXIT_MEANINGS[93])
    moved = Failure(launcher="a", code=16, meaning=EXIT_MEANINGS[16])
    resumed = Failure(launcher="a", code=17, meaning=EXIT_MEANINGS[17])

    assert rung(stop, spares=1) is Rung.FAIL
    assert rung(moved, spares=1) is Rung.SPARE
    assert rung(moved) is Rung.IN_PLACE
    assert rung(resumed, spares=1) is Rung.IN_PLACE


def test_exit_meanings_are_parsed() -> None:
    assert parse_exit_meanings("16=crash,42=stop") == {16: ExitMeaning.CRASH, 42: ExitMeaning.STOP}
    assert parse_exit_meanings("") == {}


@pytest.mark.parametrize(
    "text", ["x=stop", "0=stop", "256=stop", "5", "5=again", "=stop", "²=stop"]
)
def test_a_bad_exit_meaning_is_refused_with_its_entry(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_exit_meanings(text)
