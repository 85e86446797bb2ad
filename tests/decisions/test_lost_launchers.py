"""Launchers that a coordinator loses all at once, by a cut of the network or by its own pause."""

from dataclasses import replace

import pytest
from decisions.test_launch_rounds import MOMENT, T0, after, failed, joined, stopped

from holdfast.apps.launch.coordinator import progress_lines
from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.launch_events import Lost, StopRequested
from holdfast.decisions.launch_orders import (
    Order,
    OrderKind,
    order_for,
    order_without_coordinator,
)
from holdfast.decisions.launch_rounds import advance, next_deadline
from holdfast.decisions.launch_state import JobRounds, Outcome, Phase, RoundSettings
from holdfast.decisions.restart_rungs import RestartBudget

MANY = RoundSettings(nodes=12)
NAMES = [f"n{number}" for number in range(MANY.nodes)]


def cut_off(config: RoundSettings) -> JobRounds:
    """Return a job whose coordinator has lost all other launchers, as by a cut of the network."""
    lost = [Lost(launcher=name) for name in NAMES[1:]]
    job = after([*map(joined, NAMES), *lost, stopped("n0")], config)
    return after([None], config, job, T0 + config.fence)


def test_more_lost_launchers_than_may_be_exchanged_are_awaited_and_cost_no_exchange() -> None:
    job = cut_off(MANY)
    assert (job.phase, job.history.total, job.awaits_lost) == (Phase.STOP, 0, True)
    assert order_for(job, "n0").kind is OrderKind.STOP
    assert next_deadline(job, MANY) == T0 + MANY.join_timeout

    late = T0 + MANY.join_timeout - MOMENT
    job = after([*map(joined, NAMES[1:])], MANY, job, late)
    assert (job.phase, job.round, set(job.active)) == (Phase.RUN, 2, set(NAMES))
    assert (job.history.total, job.history.exchanges) == (1, 0)


def test_lost_launchers_that_do_not_join_again_end_the_job_after_the_join_timeout() -> None:
    whole = replace(MANY, budget=RestartBudget(job_restarts=1))
    for config, outcome in ((MANY, Outcome.FAILED), (whole, Outcome.RESTART_JOB)):
        job = after([None], config, cut_off(config), T0 + MANY.join_timeout)
        assert (job.outcome, job.why) == (outcome, "exchanges of nodes exhausted (0 of 10)")


def test_lost_launchers_are_not_awaited_by_a_job_that_stops_or_must_not_restart() -> None:
    stop = after([StopRequested(signal=15)], MANY, cut_off(MANY), T0 + MANY.fence)
    assert stop.outcome is Outcome.INTERRUPTED

    final = failed("n0", meaning=ExitMeaning.STOP)
    lost = [Lost(launcher=name) for name in NAMES[1:]]
    job = after([*map(joined, NAMES), final, *lost, stopped("n0")], MANY)
    assert after([None], MANY, job, T0 + MANY.fence).outcome is Outcome.FAILED


def test_only_nodes_that_others_have_replaced_count_as_exchanged() -> None:
    job = after([*map(joined, NAMES), *(Lost(launcher=name) for name in ("n1", "n2"))], MANY)
    job = after([*(stopped(name) for name in NAMES)], MANY, job)
    job = after([None], MANY, job, T0 + MANY.fence)
    assert (job.phase, job.history.exchanges) == (Phase.GATHER, 2)

    job = after([joined("n1"), joined("other")], MANY, job, T0 + MANY.fence)
    assert (job.phase, job.history.exchanges) == (Phase.RUN, 1)


def test_the_wait_for_lost_launchers_is_reported_once() -> None:
    lost = [Lost(launcher=name) for name in NAMES[1:]]
    before = after([*map(joined, NAMES), *lost, stopped("n0")], MANY)
    job = advance(before, None, T0 + MANY.fence, MANY)

    assert progress_lines(before, job, MANY) == [
        "LaunchersLost: round 1: 11 of 12; exchanges of nodes used: 0 of 10; waiting up to 10m for "
        "them to join again"
    ]
    assert progress_lines(job, after([joined("new")], MANY, job, T0 + MANY.fence), MANY) == []


@pytest.mark.parametrize(
    ("last_round", "left", "outcome"),
    [(0, 1, Outcome.FAILED), (1, 0, Outcome.FAILED), (1, 1, Outcome.RESTART_JOB)],
)
def test_without_a_coordinator_a_job_that_has_run_restarts_if_it_may(
    last_round: int, left: int, outcome: Outcome
) -> None:
    order = order_without_coordinator(last_round, RestartBudget(job_restarts=left))

    assert order == Order(kind=OrderKind.END, round=0, outcome=outcome)
