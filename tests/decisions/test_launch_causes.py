"""Failures of a launched job after which a restart would fail in the same way."""

from dataclasses import replace
from datetime import timedelta

import pytest
from test_launch_rounds import SECOND, T0, TWO, after, failed, joined, reported, stopped

from holdfast.decisions.launch_events import Failed, NodeFault
from holdfast.decisions.launch_rounds import advance, next_deadline
from holdfast.decisions.launch_state import JobRounds, Outcome, Phase, RoundSettings
from holdfast.model.names import Cause

ONE = RoundSettings(nodes=1)
TICK = timedelta(microseconds=1)


def of_cause(cause: Cause | str, name: str = "a", number: int = 1, **report: bool) -> Failed:
    return replace(failed(name, number), cause=cause, **report)


def one_node(event: Failed, config: RoundSettings = ONE, seconds: float = 0) -> JobRounds:
    job = after([joined("a")], config)
    return after([event, stopped("a")], config, job, T0 + seconds * SECOND)


@pytest.mark.parametrize(
    "cause",
    [
        Cause.IMPORT_FAILED,
        Cause.SYNTAX_INVALID,
        Cause.ARGUMENTS_INVALID,
        Cause.COMMAND_MISSING,
        Cause.FILE_MISSING,
        Cause.DISK_FULL,
    ],
)
def test_a_job_of_one_node_fails_at_once_and_names_the_remedy(cause: Cause) -> None:
    job = one_node(of_cause(cause))

    assert (job.phase, job.outcome, job.history.total) == (Phase.END, Outcome.FAILED, 0)
    assert f"a restart would fail in the same way ({cause}): " in job.why
    assert job.why.endswith(", then resubmit")


@pytest.mark.parametrize("cause", ["", Cause.EXCEPTION, Cause.KILLED, Cause.CUDA_OUT_OF_MEMORY])
def test_other_causes_restart_the_ranks(cause: str) -> None:
    assert (one_node(of_cause(cause)).round) == 2


def test_after_a_step_only_a_full_disk_is_permanent() -> None:
    assert one_node(of_cause(Cause.FILE_MISSING, has_progress=True)).round == 2
    assert one_node(of_cause(Cause.DISK_FULL, has_progress=True)).outcome is Outcome.FAILED


def test_without_reports_of_steps_the_start_is_limited_in_time() -> None:
    limit = ONE.start_limit.total_seconds()

    assert one_node(of_cause(Cause.IMPORT_FAILED), seconds=limit).round == 2
    job = one_node(of_cause(Cause.IMPORT_FAILED), seconds=limit - 1e-6)
    assert job.outcome is Outcome.FAILED


def test_the_policy_can_restart_after_every_cause() -> None:
    always = replace(ONE, stops_on_permanent_cause=False)

    assert one_node(of_cause(Cause.IMPORT_FAILED), always).round == 2


def test_two_nodes_must_fail_by_themselves() -> None:
    running = after([joined("a"), joined("b")])
    job = after([of_cause(Cause.IMPORT_FAILED)], job=running)
    assert job.phase is Phase.RUN, "the other node has time to fail"
    assert next_deadline(job, TWO) == T0 + TWO.failure_margin

    job = after([of_cause(Cause.IMPORT_FAILED, "b")], job=job, now=T0 + SECOND)
    assert job.phase is Phase.STOP
    job = after([stopped("a"), stopped("b")], job=job, now=T0 + SECOND)
    assert job.outcome is Outcome.FAILED


def test_a_module_that_is_missing_on_one_node_restarts_the_ranks_after_the_margin() -> None:
    job = after([joined("a"), joined("b"), of_cause(Cause.IMPORT_FAILED)])
    job = after([None], job=job, now=T0 + TWO.failure_margin - TICK)
    assert job.phase is Phase.RUN

    now = T0 + TWO.failure_margin
    job = after([None], job=job, now=now)
    assert job.phase is Phase.STOP
    job = after([stopped("a"), stopped("b")], job=job, now=now)
    assert (job.round, job.history.cause) == (2, Cause.IMPORT_FAILED)


def test_another_failure_of_the_same_node_or_of_another_cause_shows_nothing() -> None:
    running = after([joined("a"), joined("b"), of_cause(Cause.IMPORT_FAILED)])

    for event in (of_cause(Cause.IMPORT_FAILED), of_cause(Cause.EXCEPTION, "b")):
        job = after([event, None], job=running, now=T0 + TWO.failure_margin)
        job = after([stopped("a"), stopped("b")], job=job, now=T0 + TWO.failure_margin)
        assert job.round == 2


PEER = replace(of_cause(Cause.PEER_LOST, "b"), is_consequence=True, rank=1, text="peer closed")


def test_a_rank_that_ended_after_its_peer_had_lost_it_is_the_failure_of_the_round() -> None:
    job = after([joined("a"), joined("b"), PEER])
    assert (job.phase, job.failure.launcher) == (Phase.STOP, "b")

    late = replace(of_cause(Cause.DISK_FULL, has_progress=True), text="disk is full")
    job = after([late], job=job, now=T0 + SECOND)
    assert (job.failure.launcher, job.failure.cause) == ("a", Cause.DISK_FULL)
    assert job.failure.text == "disk is full; rank 1 ended before it: peer closed"
    assert (job.failure.at, job.failure.is_at_start) == (T0, False)

    once = after([stopped("a"), stopped("b")], job=job, now=T0 + SECOND)
    assert (once.round, once.history.cause) == (2, Cause.DISK_FULL)

    both = after([of_cause(Cause.DISK_FULL, "b"), stopped("a"), stopped("b")], job=job)
    assert both.outcome is Outcome.FAILED


def test_a_job_of_one_node_fails_at_once_for_the_rank_that_ended_late() -> None:
    running = after([joined("a")], ONE)
    events = (replace(PEER, launcher="a"), of_cause(Cause.IMPORT_FAILED), stopped("a"))
    job = after([*events], ONE, running)

    assert job.outcome is Outcome.FAILED
    assert "(ImportFailed)" in job.why


@pytest.mark.parametrize("cause", [Cause.EXCEPTION, Cause.KILLED, Cause.PEER_LOST, ""])
@pytest.mark.parametrize("first", [PEER, of_cause(Cause.NUMERICAL, "b"), of_cause("", "b")])
def test_what_a_stop_may_have_caused_replaces_no_failure(first: Failed, cause: str) -> None:
    job = after([joined("a"), joined("b"), first])

    assert after([of_cause(cause)], job=job).failure.launcher == "b"


@pytest.mark.parametrize("first", [of_cause(Cause.NUMERICAL, "b"), of_cause("", "b")])
def test_a_failure_that_has_another_cause_than_a_peer_is_kept(first: Failed) -> None:
    job = after([joined("a"), joined("b"), first])

    assert after([of_cause(Cause.DISK_FULL)], job=job).failure == job.failure


def test_other_failures_stop_the_ranks_without_a_wait() -> None:
    for event in (of_cause(Cause.EXCEPTION), of_cause(Cause.IMPORT_FAILED, has_progress=True)):
        assert after([joined("a"), joined("b"), event]).phase is Phase.STOP


def test_a_disk_that_is_full_twice_in_a_row_ends_a_job_whose_rank_0_saves_alone() -> None:
    job = after([joined("a"), joined("b")])
    now = T0
    for number in (1, 2):
        assert job.round == number
        event = of_cause(Cause.DISK_FULL, number=number, has_progress=True)
        job = advance(job, event, now, TWO)
        now += TWO.failure_margin
        job = after([None, stopped("a", number), stopped("b", number)], job=job, now=now)

    assert job.outcome is Outcome.FAILED
    assert "(DiskFull)" in job.why


def test_the_fault_of_the_node_goes_first() -> None:
    fault = NodeFault(text="disk is gone", is_urgent=True)
    job = after([joined("a"), joined("b"), reported("a", fault), of_cause(Cause.FILE_MISSING)])
    now = T0 + TWO.failure_margin
    job = after([of_cause(Cause.FILE_MISSING, "b"), stopped("a"), stopped("b")], job=job, now=now)

    assert job.phase is not Phase.END
