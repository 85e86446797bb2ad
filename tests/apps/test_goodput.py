"""How the time of a job adds up."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.apps.views.goodput import Goodput, by_cause, goodput
from holdfast.apps.views.jobs import Attempt, JobStatus

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NONE = timedelta(0)


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def job(*attempts: Attempt, is_active: bool = True, ended_s: float = 0) -> JobStatus:
    return JobStatus(
        name="llm",
        is_active=is_active,
        phase="running",
        phase_since=START + s(ended_s),
        reason="",
        started_at=START,
        nodes=2,
        attempt=len(attempts),
        placement=(),
        hardware_retries=0,
        max_retries=10,
        app_retries=0,
        max_app_retries=3,
        grace=s(5),
        attempts=attempts,
    )


FAILED = Attempt(
    attempt=1,
    placement=("n1", "n2"),
    started_at=START,
    stopped_at=START + s(112),
    started_in=s(10),
    stopped_in=s(2),
    first_step=100,
    last_step=200,
    lost_steps=25,
    kind="hardware",
    reason="XID",
    node="n1",
    incident_id="i1",
)
GOING_ON = Attempt(
    attempt=2,
    placement=("n1", "n3"),
    started_at=START + s(132),
    stopped_at=None,
    waited=s(20),
    started_in=s(8),
    first_step=175,
    last_step=300,
)


def parts(found: Goodput) -> dict[str, float]:
    names = ("productive", "redone", "starting", "waiting", "stopping")
    return {name: getattr(found, name).total_seconds() for name in names}


def test_all_time_is_kept_apart() -> None:
    found = goodput(job(FAILED, GOING_ON), START + s(240))

    assert found is not None
    assert parts(found) == {
        "productive": 175, "redone": 25, "starting": 18, "waiting": 20, "stopping": 2,
    }  # fmt: skip
    assert found.share == pytest.approx(175 / 240)
    assert found.reports_steps


def test_a_failure_costs_the_time_until_all_ranks_run_again_and_what_is_done_again() -> None:
    found = goodput(job(FAILED, GOING_ON), START + s(240))

    assert found is not None
    [loss] = found.losses
    assert (loss.stopping, loss.waiting, loss.starting, loss.redone) == (s(2), s(20), s(8), s(25))
    assert loss.whole == s(55)
    assert (loss.reason, loss.node, loss.incident_id) == ("XID", "n1", "i1")
    assert loss.at == START + s(110)


def test_a_job_that_waits_loses_more_every_second() -> None:
    early, late = (goodput(job(FAILED), START + s(at)) for at in (120, 150))

    assert early is not None
    assert late is not None
    assert (early.waiting, late.waiting) == (s(8), s(38))
    assert (early.losses[0].waiting, late.losses[0].waiting) == (s(8), s(38))


def test_after_its_end_nothing_is_added() -> None:
    ended = job(FAILED, replace(GOING_ON, stopped_at=START + s(200)), is_active=False, ended_s=200)

    found = goodput(ended, START + s(9000))

    assert found is not None
    assert found.whole == s(200)


def test_a_job_that_was_killed_ended_when_its_phase_was_last_written() -> None:
    found = goodput(job(replace(GOING_ON), is_active=False, ended_s=150), START + s(9000))

    assert found is not None
    assert found.ended_at == START + s(150)


def test_without_steps_nothing_is_reported_of_work_that_was_done_again() -> None:
    silent = replace(FAILED, first_step=None, last_step=None, lost_steps=None)

    found = goodput(job(silent, replace(GOING_ON, first_step=None)), START + s(240))

    assert found is not None
    assert found.redone == NONE
    assert not found.reports_steps


def test_no_more_is_done_again_than_was_done() -> None:
    found = goodput(job(replace(FAILED, lost_steps=1000)), START + s(112))

    assert found is not None
    assert (found.redone, found.productive) == (s(100), NONE)


def test_an_attempt_whose_ranks_never_all_ran_was_starting_all_the_time() -> None:
    never = replace(FAILED, started_in=None, first_step=None, last_step=None, lost_steps=None)

    found = goodput(job(never), START + s(112))

    assert found is not None
    assert found.starting == s(110)
    assert found.productive == NONE


def test_steps_show_that_ranks_ran_where_nobody_noted_it() -> None:
    found = goodput(job(replace(FAILED, started_in=None)), START + s(112))

    assert found is not None
    assert (found.starting, found.productive) == (NONE, s(82.5))


def test_there_is_nothing_to_report_before_the_first_attempt() -> None:
    assert goodput(job(), START) is None


def test_causes_are_added_up_the_dearest_first() -> None:
    app = replace(
        FAILED,
        kind="application",
        reason="ExitCode",
        started_at=START + s(112),
        stopped_at=START + s(300),
        lost_steps=100,
    )
    found = goodput(job(FAILED, app), START + s(300))

    assert found is not None
    assert list(by_cause([*found.losses, *found.losses])) == [
        ("application", "ExitCode"),
        ("hardware", "XID"),
    ]
    assert by_cause([*found.losses, *found.losses])["hardware", "XID"] == 2 * found.losses[0].whole


moments = st.integers(-50, 500).map(lambda second: START + s(second))
durations = st.none() | st.integers(0, 300).map(s)
steps = st.none() | st.integers(0, 50)
attempts = st.builds(
    Attempt,
    attempt=st.integers(1, 9),
    placement=st.just(("n1",)),
    started_at=moments,
    stopped_at=st.none() | moments,
    started_in=durations,
    stopped_in=durations,
    first_step=steps,
    last_step=steps,
    lost_steps=steps,
    kind=st.sampled_from(["", "hardware"]),
)


@given(st.lists(attempts, max_size=5), moments, st.booleans())
def test_whatever_is_written_the_parts_are_the_whole_and_none_is_negative(
    written: list[Attempt], now: datetime, is_active: bool
) -> None:
    found = goodput(job(*written, is_active=is_active), now)

    if found is not None:
        reported = parts(found)
        assert sum(reported.values()) == pytest.approx(found.whole.total_seconds(), abs=1e-4)
        assert min(reported.values()) >= 0
        assert found.share is None or 0 <= found.share <= 1
        assert all(min(one.stopping, one.waiting, one.starting, one.redone) >= NONE
                   for one in found.losses)  # fmt: skip
