from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.decisions.job_lifecycle import after_job, launched
from holdfast.model.actions import (
    Finish,
    KillAttempt,
    Relaunch,
    Retry,
    StartAttempt,
    StopAttempt,
)
from holdfast.model.jobs import ATTEMPTS_LIMIT, AttemptRecord, Failure, FailureKind, JobPhase
from tests.ports.builders import LONG_AGO, NOW, a_job

FAILURE = Failure(kind=FailureKind.HARDWARE, reason="Cause", at=LONG_AGO, step=7)
OVER = AttemptRecord(
    attempt=1,
    placement=("node-1", "node-2"),
    started_at=NOW - timedelta(minutes=1),
    stopped_at=NOW,
    first_step=5,
    last_step=7,
    failure=FAILURE,
)


def test_a_start_is_recorded_before_the_launch() -> None:
    job = a_job(JobPhase.WAITING, record={"attempt": 4, "start_after": LONG_AGO, "kills": 2})

    record = after_job(job, StartAttempt(job="job-1", placement=("a", "b")), NOW)

    assert (record.phase, record.phase_since, record.started_at) == (JobPhase.STARTING, NOW, NOW)
    assert (record.attempt, record.placement) == (5, ("a", "b"))
    assert (record.start_after, record.kills, record.reason) == (None, 0, "")


def test_a_repeated_launch_is_the_same_attempt() -> None:
    job = a_job(JobPhase.STARTING)

    assert after_job(job, Relaunch(job="job-1"), NOW) == job.record


def test_a_launched_attempt_keeps_the_time_of_its_start() -> None:
    record = launched(a_job(JobPhase.STARTING, record={"started_at": LONG_AGO}).record, NOW)

    assert (record.phase, record.phase_since) == (JobPhase.RUNNING, NOW)
    assert record.started_at == LONG_AGO


@pytest.mark.parametrize(
    ("failure", "reason"), [(FAILURE, "Cause"), (None, "cancelled by request")]
)
def test_a_stop_names_its_reason(failure, reason) -> None:
    job = a_job(record={"failure": replace(FAILURE, reason="Earlier"), "kills": 3})

    record = after_job(job, StopAttempt(job="job-1", failure=failure), NOW)

    assert (record.phase, record.phase_since) == (JobPhase.STOPPING, NOW)
    assert (record.failure, record.reason, record.kills) == (failure, reason, 0)


def test_kills_are_counted_and_dated() -> None:
    job = a_job(JobPhase.STOPPING, record={"kills": 2})

    record = after_job(job, KillAttempt(job="job-1"), NOW)

    assert (record.phase, record.phase_since, record.kills) == (JobPhase.STOPPING, NOW, 3)


@pytest.mark.parametrize(
    ("kind", "hardware", "app"),
    [
        (FailureKind.HARDWARE, 3, 1),
        (FailureKind.APPLICATION, 2, 2),
        (FailureKind.REQUESTED, 2, 1),
    ],
)
def test_a_retry_spends_one_budget(kind, hardware, app) -> None:
    job = a_job(JobPhase.STOPPING, record={"hardware_retries": 2, "app_retries": 1, "kills": 2})
    failure = replace(FAILURE, kind=kind)

    record = after_job(job, Retry(job="job-1", failure=failure, start_after=LONG_AGO), NOW)

    assert (record.hardware_retries, record.app_retries) == (hardware, app)
    assert (record.phase, record.phase_since) == (JobPhase.WAITING, NOW)
    assert (record.failure, record.reason) == (failure, "Cause")
    assert (record.start_after, record.kills) == (LONG_AGO, 0)
    assert (record.attempt, record.placement) == (1, ("node-1", "node-2"))


def test_an_attempt_that_is_over_is_kept_with_its_verdict() -> None:
    job = a_job(JobPhase.STOPPING, first_step=5, step=7)

    record = after_job(job, Retry(job="job-1", failure=FAILURE, start_after=None), NOW)

    assert record.attempts == (OVER,)


def test_the_oldest_attempts_are_forgotten() -> None:
    attempts = tuple(replace(OVER, attempt=number) for number in range(ATTEMPTS_LIMIT))
    job = a_job(JobPhase.STOPPING, record={"attempts": attempts, "attempt": 500})

    record = after_job(job, Retry(job="job-1", failure=FAILURE, start_after=None), NOW)

    assert len(record.attempts) == ATTEMPTS_LIMIT
    assert [one.attempt for one in record.attempts][::99] == [1, 500]


@pytest.mark.parametrize(
    ("before", "step", "best"),
    [(None, None, None), (None, 7, 7), (9, 7, 9), (5, 7, 7), (5, None, 5)],
)
def test_the_best_step_never_goes_back(before, step, best) -> None:
    job = a_job(JobPhase.STOPPING, record={"best_step": before})
    failure = replace(FAILURE, step=step)

    assert (
        after_job(job, Retry(job="job-1", failure=failure, start_after=None), NOW).best_step == best
    )


def test_failures_without_progress_are_remembered() -> None:
    job = a_job(JobPhase.STOPPING, record={"best_step": 7, "same_step_failures": 1})
    failure = replace(FAILURE, kind=FailureKind.APPLICATION)

    record = after_job(job, Retry(job="job-1", failure=failure, start_after=None), NOW)

    assert record.same_step_failures == 2


def test_a_job_that_ends_keeps_its_last_attempt() -> None:
    job = a_job(JobPhase.STOPPING, first_step=5, step=7)
    action = Finish(job="job-1", outcome=JobPhase.FAILED, reason="spent", failure=FAILURE)

    record = after_job(job, action, NOW)

    assert (record.phase, record.phase_since, record.reason) == (JobPhase.FAILED, NOW, "spent")
    assert (record.attempts, record.failure) == ((OVER,), FAILURE)


def test_a_success_has_no_failure_and_does_not_hide_the_last_one() -> None:
    job = a_job(first_step=5, step=7, record={"failure": FAILURE})
    action = Finish(job="job-1", outcome=JobPhase.SUCCEEDED, reason="done")

    record = after_job(job, action, NOW)

    assert record.attempts == (replace(OVER, failure=None),)
    assert record.failure == FAILURE


def test_a_job_that_ends_while_it_waits_had_no_further_attempt() -> None:
    job = a_job(JobPhase.WAITING, record={"attempts": (OVER,), "attempt": 1})

    record = after_job(job, Finish(job="job-1", outcome=JobPhase.FAILED, reason="no nodes"), NOW)

    assert record.attempts == (OVER,)


def test_a_new_attempt_has_not_run_yet_though_the_last_one_had() -> None:
    job = a_job(JobPhase.WAITING, record={"running_at": NOW - timedelta(hours=1)})

    record = after_job(job, StartAttempt(job="job-1", placement=()), NOW)

    assert record.running_at is None
    assert launched(record, NOW).running_at == NOW
