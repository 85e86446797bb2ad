"""Laws of the restart ladder, for every cause, means, history and budget."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_strategies import restart_budgets

from holdfast.decisions.exit_meanings import ExitMeaning, parse_exit_meanings
from holdfast.decisions.restart_rungs import (
    MAX_IN_PLACE,
    Cause,
    Means,
    RestartBudget,
    RestartHistory,
    Rung,
    RungChoice,
    choose_rung,
)
from holdfast.kit.serial import from_plain, to_plain

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TICK = timedelta.resolution
BUDGET = RestartBudget(in_place=2, period=HOUR, exchanges=1, total=5)
CRASH = Cause(text="exit code 1")
NONE = Means()
LOST, LOST_WITH_SPARE = Means(missing=1), Means(missing=1, spares=1)
RESTARTS = (Rung.IN_PLACE, Rung.SPARE, Rung.EXCHANGE)

small = st.integers(0, 4)
texts = st.sampled_from(["", "why"])
causes = st.builds(Cause, text=st.just("why"), is_final=st.booleans())
means = st.builds(
    Means, missing=small, spares=small, avoided=small, better=small, can_exchange=st.booleans(),
    may_return=st.booleans(), obstacle=texts, only_whole_job=texts,
).map(lambda one: replace(one, better=min(one.better, one.spares)))  # fmt: skip


def rung(cause: Cause, with_what: Means = NONE, **history: object) -> Rung:
    past = RestartHistory(**history)  # type: ignore[arg-type]
    return choose_rung(cause, with_what, past, BUDGET).rung


def replay(
    cause: Cause, with_what: Means, budget: RestartBudget, steps: int, pause: timedelta
) -> list[RungChoice]:
    """The same failure again and again, until the ladder ends."""
    history, choices = RestartHistory(), list[RungChoice]()
    for number in range(steps):
        now = NOW + number * pause
        history = history.since(now - budget.period)
        choices.append(choose_rung(cause, with_what, history, budget))
        if choices[-1].rung not in RESTARTS:
            break
        history = history.with_restart(choices[-1], "a", now)
    return choices


@given(causes, means, restart_budgets, st.sampled_from([timedelta(), TICK, HOUR, 1000 * HOUR]))
def test_every_ladder_ends_and_keeps_every_budget(
    cause: Cause, with_what: Means, budget: RestartBudget, pause: timedelta
) -> None:
    choices = replay(cause, with_what, budget, 200, pause)

    *restarts, end = choices
    assert end.rung in (Rung.WAIT, Rung.WHOLE_JOB, Rung.FAIL)
    assert len(restarts) <= budget.limit
    assert sum(one.nodes for one in restarts) <= budget.exchanges
    within = sum(one.rung is Rung.IN_PLACE for one in restarts)
    if len(restarts) * pause < budget.period:
        assert within <= budget.in_place
    if end.rung is Rung.WHOLE_JOB:
        assert budget.job_restarts > 0


@given(causes, means, restart_budgets)
def test_no_choice_uses_a_node_that_is_lost_or_repaired(
    cause: Cause, with_what: Means, budget: RestartBudget
) -> None:
    for choice in replay(cause, with_what, budget, 10, timedelta()):
        if choice.rung is Rung.IN_PLACE:
            assert with_what.missing == 0
            assert choice.nodes == 0
        if choice.rung in (Rung.SPARE, Rung.EXCHANGE):
            assert choice.nodes >= max(1, with_what.missing)
        if choice.rung is Rung.SPARE:
            assert choice.nodes <= with_what.spares
            assert choice.nodes <= max(with_what.missing, with_what.better)
            assert choice.nodes <= with_what.missing + with_what.avoided
        if choice.rung is Rung.EXCHANGE:
            assert with_what.can_exchange
        if choice.rung is Rung.WAIT:
            assert with_what.may_return
            assert with_what.missing > 0


@given(causes, means, restart_budgets)
def test_a_final_cause_is_never_restarted_and_every_choice_has_a_reason(
    cause: Cause, with_what: Means, budget: RestartBudget
) -> None:
    choice = choose_rung(cause, with_what, RestartHistory(), budget)

    assert choice.why
    if cause.is_final:
        assert choice.rung is Rung.FAIL
    elif with_what.only_whole_job:
        assert choice.rung in (Rung.WHOLE_JOB, Rung.FAIL)


@given(st.integers(0, 120), st.integers(1, 60))
def test_as_many_restarts_in_place_as_the_budget_says(in_place: int, exchanges: int) -> None:
    budget = RestartBudget(in_place=in_place, exchanges=exchanges)
    *restarts, end = replay(CRASH, NONE, budget, 200, timedelta())

    assert len(restarts) == in_place
    assert end.why == f"restarts in place exhausted ({in_place} of {in_place})"


def test_the_longest_history_fits_into_a_message() -> None:
    times = (NOW,) * MAX_IN_PLACE
    failures = {f"{'n' * 90}{number}": 9**6 for number in range(16)}
    history = RestartHistory(total=9**6, in_place=times, last=Rung.IN_PLACE, failures=failures)

    plain = to_plain(history)
    assert len(str(plain)) < 60_000
    assert from_plain(RestartHistory, plain) == history


def test_restarts_in_place_count_within_the_period() -> None:
    history = RestartHistory(in_place=(NOW - HOUR, NOW - HOUR + TICK)).since(NOW - HOUR)

    assert choose_rung(CRASH, NONE, history, BUDGET).rung is Rung.IN_PLACE
    history = RestartHistory(in_place=(NOW - HOUR + TICK,) * 2).since(NOW - HOUR)
    assert choose_rung(CRASH, NONE, history, BUDGET).rung is Rung.FAIL


def test_a_lost_node_is_exchanged_by_a_spare_if_there_is_one() -> None:
    assert rung(CRASH, LOST_WITH_SPARE) is Rung.SPARE
    assert rung(CRASH, LOST) is Rung.EXCHANGE
    assert rung(CRASH, LOST_WITH_SPARE, exchanges=1) is Rung.FAIL


def test_the_total_bounds_every_restart() -> None:
    assert rung(CRASH, total=4) is Rung.IN_PLACE
    assert rung(CRASH, total=5) is Rung.FAIL


def test_a_node_to_avoid_is_exchanged_only_by_a_better_one_and_within_the_budget() -> None:
    better = Means(spares=1, avoided=1, better=1)

    assert rung(CRASH, better) is Rung.SPARE
    assert rung(CRASH, better, exchanges=1) is Rung.IN_PLACE
    assert rung(CRASH, Means(spares=1, avoided=1)) is Rung.IN_PLACE
    assert rung(CRASH, Means(avoided=1)) is Rung.IN_PLACE
    assert rung(CRASH, Means(missing=1, spares=1, avoided=1)) is Rung.SPARE


def test_lost_nodes_are_exchanged_before_those_to_avoid() -> None:
    both = Means(missing=1, spares=3, avoided=2, better=3)

    choices = [
        choose_rung(CRASH, both, RestartHistory(), RestartBudget(exchanges=most))
        for most in range(4)
    ]
    assert [one.rung for one in choices] == [Rung.FAIL, *[Rung.SPARE] * 3]
    assert [one.nodes for one in choices] == [0, 1, 2, 3]


def test_a_node_is_a_repeat_offender_with_its_last_tolerated_failure() -> None:
    in_place, history = RungChoice(Rung.IN_PLACE, "x"), RestartHistory()
    budget, unlimited = RestartBudget(offender_failures=2), RestartBudget(offender_failures=0)
    assert history.is_offender("a", RestartBudget(offender_failures=1), 1)
    for node in ("a", "b"):
        history = history.with_restart(in_place, node, NOW)

    assert not history.is_offender("a", budget)
    assert history.is_offender("a", budget, 1)
    history = history.with_restart(in_place, "a", NOW)
    assert history.is_offender("a", budget)
    assert not history.is_offender("b", budget)
    assert not history.is_offender("a", unlimited)


@given(st.lists(st.sampled_from([f"n{number}" for number in range(20)])))
def test_the_nodes_that_failed_last_are_remembered(nodes: list[str]) -> None:
    history = RestartHistory()
    for node in nodes:
        history = history.with_restart(RungChoice(Rung.IN_PLACE, "x"), node, NOW)

    last = list(dict.fromkeys(reversed(nodes)))[:16]
    assert list(history.failures) == last[::-1]
    if len(set(nodes)) <= 16:
        assert sum(history.failures.values()) == len(nodes)


def test_exit_meanings_are_parsed() -> None:
    assert parse_exit_meanings("16=crash,42=stop") == {16: ExitMeaning.CRASH, 42: ExitMeaning.STOP}
    assert parse_exit_meanings("") == {}


@pytest.mark.parametrize(
    "text", ["x=stop", "0=stop", "256=stop", "5", "5=again", "=stop", "²=stop"]
)
def test_a_bad_exit_meaning_is_refused_with_its_entry(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_exit_meanings(text)
