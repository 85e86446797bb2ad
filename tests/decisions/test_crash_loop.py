"""The pause before a job that fails by itself starts again: none, then 10 s, doubling."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.crash_loop import app_backoff, crashes_in_a_row
from holdfast.decisions.job_resume import ResumePolicy, decide_job
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.model.actions import Retry
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase, JobRecord
from tests.ports.builders import NOW, a_job, by_name, healthy_nodes

HARDWARE, APPLICATION, REQUESTED = FailureKind
TICK = timedelta(microseconds=1)
SHORT = timedelta(seconds=8)
SPANS = st.timedeltas(timedelta(0), timedelta(hours=1))
POLICIES = st.builds(
    lambda pauses, reset: JobPolicy(
        app_backoff=min(pauses), app_backoff_max=max(pauses), app_backoff_reset=reset
    ),
    st.tuples(SPANS, SPANS),
    st.timedeltas(TICK, timedelta(hours=1)),
)


def failed(kind: FailureKind = APPLICATION) -> Failure:
    return Failure(kind=kind, reason="RankExited", at=NOW)


def over(ran: timedelta, kind: FailureKind | None = APPLICATION) -> AttemptRecord:
    failure = failed(kind) if kind is not None else None
    return AttemptRecord(
        attempt=1, placement=("node-1",), started_at=NOW - ran, stopped_at=NOW, failure=failure
    )


def record(*before: AttemptRecord, ran: timedelta = SHORT) -> JobRecord:
    began = NOW - ran
    return JobRecord(phase=JobPhase.STOPPING, phase_since=NOW, started_at=began, attempts=before)


@pytest.mark.parametrize(
    ("crashes", "pause"),
    [
        (0, timedelta(0)),
        (1, timedelta(seconds=10)),
        (2, timedelta(seconds=20)),
        (5, timedelta(seconds=160)),
        (6, timedelta(minutes=5)),
        (99, timedelta(minutes=5)),
    ],
)
def test_a_crash_loop_backs_off_as_the_kubelet_does(crashes, pause) -> None:
    before = [over(SHORT)] * crashes

    assert app_backoff(record(*before), failed(), JobPolicy()) == pause


@given(st.lists(SPANS, max_size=40), POLICIES)
def test_no_pause_is_longer_than_allowed_and_none_is_shorter_than_the_one_before(runs, policy):
    pauses = [
        app_backoff(record(*[over(timedelta(0))] * count, ran=timedelta(0)), failed(), policy)
        for count in range(len(runs))
    ]

    assert pauses == sorted(pauses)
    assert all(pause <= policy.app_backoff_max for pause in pauses)


@given(st.lists(SPANS, max_size=20), POLICIES)
def test_an_attempt_that_ran_for_long_ends_the_row(runs, policy):
    before = [over(ran) for ran in runs]
    reset = policy.app_backoff_reset

    assert crashes_in_a_row(record(*before, ran=reset), failed(), policy) == 1
    behind = record(*before, over(reset), ran=timedelta(0))
    assert crashes_in_a_row(behind, failed(), policy) == 2
    row = crashes_in_a_row(record(*before, ran=reset - TICK), failed(), policy)
    long_ago = [ran >= reset for ran in reversed(runs)]
    assert row == 1 + (long_ago.index(True) + 1 if any(long_ago) else len(runs))


@given(st.lists(st.sampled_from([HARDWARE, REQUESTED, None]), max_size=20))
def test_failures_of_nodes_neither_count_nor_end_a_row(kinds):
    before = [over(SHORT), *(over(SHORT, kind) for kind in kinds)]

    assert crashes_in_a_row(record(*before), failed(), JobPolicy()) == 2


@pytest.mark.parametrize(("kind", "waits"), [(APPLICATION, 10), (HARDWARE, 0), (REQUESTED, 0)])
def test_only_a_job_that_fails_by_itself_waits(kind, waits) -> None:
    job = a_job(
        JobPhase.STOPPING,
        ranks=(),
        record={"failure": failed(kind), "attempts": (over(SHORT),), "app_retries": 1},
    )
    policy = ResumePolicy(job=JobPolicy(settle=timedelta(0)), nodes=RemediationPolicy())

    choice = decide_job(job, by_name(*healthy_nodes(2)), policy, NOW)

    assert isinstance(choice, Retry)
    assert choice.start_after == (NOW + timedelta(seconds=waits) if waits else None)
