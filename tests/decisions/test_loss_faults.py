"""Numerical faults: which losses are faults, and what follows."""

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_strategies import loss_limits

from holdfast.decisions.job_resume import ResumePolicy, decide_job
from holdfast.decisions.loss_faults import (
    LossHistory,
    LossLimits,
    after_report,
    loss_notice,
    skipped_steps,
)
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.model.actions import Finish, Retry, StopAttempt, Wait
from holdfast.model.job_views import JobView
from holdfast.model.jobs import (
    AttemptRecord,
    Failure,
    FailureKind,
    JobPhase,
    LossAction,
    LossFault,
    StepReport,
)
from holdfast.model.names import Reason
from tests.ports.builders import NOW, a_job, by_name, healthy_nodes

POLICY = ResumePolicy(job=JobPolicy(), nodes=RemediationPolicy())
LIMITS = LossLimits()
FINITE = st.floats(-1e6, 1e6)


def after(*losses: float | None, limits: LossLimits = LIMITS) -> LossHistory:
    history = LossHistory()
    for step, loss in enumerate(losses):
        history = after_report(history, StepReport(step=step, loss=loss), limits)
    return history


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_a_fault_even_if_it_is_the_first(bad) -> None:
    fault = after(None, bad).fault

    assert fault is not None
    assert (fault.reason, fault.step) == (Reason.LOSS_NOT_FINITE, 1)
    assert fault.evidence == f"the loss is {bad} at step 1"


@pytest.mark.parametrize(
    ("losses", "is_spike"),
    [
        ((1.0, 3.0), True),
        ((1.0, 2.999), False),
        ((4.0, 2.0, 9.0), True),  # mean 3, rise of 6
        ((4.0, 2.0, 8.99), False),
        ((9.0, 1.0, 1.0, 0.5), False),  # it fell
        ((-3.0, -1.0, 2.0), True),  # mean -2: as far above as twice its size
        ((1.0,) * 20, False),
        ((5.0,), False),
    ],
)
def test_a_spike_is_worse_than_the_last_loss_and_far_from_the_mean(losses, is_spike) -> None:
    fault = after(*losses).fault

    assert (fault is not None) is is_spike
    assert fault is None or (fault.reason, fault.step) == (Reason.LOSS_SPIKED, len(losses) - 1)


def test_only_the_window_counts_and_spikes_do_not_enter_it() -> None:
    limits = LossLimits(window=2)

    assert after(100.0, 1.0, 1.0, limits=limits).recent == (1.0, 1.0)
    spiked = after(1.0, 1.0, 50.0, 50.0, limits=limits)
    assert spiked.recent == (1.0, 1.0)
    assert spiked.fault is not None
    assert spiked.fault.step == 2


def test_a_nan_after_a_spike_is_the_fault() -> None:
    fault = after(1.0, 9.0, math.nan, math.nan).fault

    assert fault is not None
    assert (fault.reason, fault.step) == (Reason.LOSS_NOT_FINITE, 2)


@given(st.lists(FINITE, max_size=30), st.integers(1, 20))
def test_without_a_tolerance_no_finite_loss_is_a_fault(losses, window) -> None:
    history = after(*losses, limits=LossLimits(window=window, tolerance=0))

    assert history.fault is None
    assert history.recent == tuple(losses[-window:])


@given(st.lists(st.floats(1.0, 2.9), min_size=1, max_size=30))
def test_losses_within_the_tolerance_of_any_mean_never_spike(losses) -> None:
    assert after(*losses).fault is None


@given(st.lists(FINITE | st.just(math.nan), max_size=30), loss_limits)
def test_the_first_fault_is_reported_with_the_action_and_never_enters_the_mean(
    losses, limits
) -> None:
    history = after(*losses, limits=limits)

    assert len(history.recent) <= limits.window
    normal, spikes = list[float](), list[int]()
    for step, loss in enumerate(losses):
        mean = math.fsum(normal[-limits.window :]) / max(1, len(normal[-limits.window :]))
        far = normal and limits.tolerance and abs(loss - mean) >= limits.tolerance * abs(mean)
        if far and loss > normal[-1]:
            spikes.append(step)
        elif math.isfinite(loss):
            normal.append(loss)
    faults = [step for step, loss in enumerate(losses) if math.isnan(loss)] or spikes
    assert history.recent == tuple(normal[-limits.window :])
    assert (history.fault is None) == (not faults)
    if history.fault is not None:
        assert (history.fault.step, history.fault.action) == (faults[0], limits.action)


def running(action: LossAction, **changes) -> JobView:
    fault = LossFault(
        reason=Reason.LOSS_NOT_FINITE, step=30, evidence="the loss is nan at step 30", action=action
    )
    return replace(a_job(), step=33, loss_fault=fault, **changes)


def test_a_person_is_asked_and_the_job_runs_on() -> None:
    job = running(LossAction.ASK)

    assert isinstance(decide_job(job, by_name(*healthy_nodes(2)), POLICY, NOW), Wait)
    assert "set loss_action" in loss_notice(job.loss_fault)


@pytest.mark.parametrize("action", [LossAction.STOP, LossAction.ROLLBACK, LossAction.SKIP])
def test_any_other_action_stops_the_attempt(action) -> None:
    job = running(action)

    stop = decide_job(job, by_name(*healthy_nodes(2)), POLICY, NOW)

    assert isinstance(stop, StopAttempt)
    assert stop.failure is not None
    assert (stop.failure.step, stop.failure.loss_action) == (30, action)
    assert stop.failure.kind is FailureKind.APPLICATION
    assert loss_notice(job.loss_fault) == ""


def failed(action: LossAction, step: int = 30) -> Failure:
    return Failure(
        kind=FailureKind.APPLICATION,
        reason=Reason.LOSS_NOT_FINITE,
        at=NOW - timedelta(minutes=5),
        step=step,
        loss_action=action,
    )


def stopped(action: LossAction, *before: AttemptRecord) -> JobView:
    """A job without ranks, stopped for its loss at step 30 on node-1 and node-2."""
    job = running(action, ranks=())
    record = replace(
        job.record,
        phase=JobPhase.STOPPING,
        placement=("node-1", "node-2"),
        failure=failed(action),
        attempts=before,
        attempt=1 + len(before),
    )
    return replace(job, record=record)


def attempt(action: LossAction, *nodes: str, step: int = 30) -> AttemptRecord:
    return AttemptRecord(
        attempt=1,
        placement=nodes,
        started_at=NOW - timedelta(hours=2),
        stopped_at=NOW - timedelta(hours=1),
        failure=failed(action, step),
    )


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (stopped(LossAction.STOP), "loss_action is stop"),
        (stopped(LossAction.ROLLBACK), ""),
        (stopped(LossAction.ROLLBACK, attempt(LossAction.ROLLBACK, "node-1", "node-3")), ""),
        (stopped(LossAction.ROLLBACK, attempt(LossAction.ROLLBACK, "node-3", step=29)), ""),
        (
            stopped(LossAction.ROLLBACK, attempt(LossAction.ROLLBACK, "node-3", "node-4")),
            "the same step failed on other nodes, too (attempt 1 on node-3, node-4): the data or",
        ),
        (stopped(LossAction.SKIP), ""),
        (stopped(LossAction.SKIP, attempt(LossAction.SKIP, "node-1", step=20)), ""),
        (
            stopped(LossAction.SKIP, attempt(LossAction.SKIP, "node-1")),
            "step 30 is named in HOLDFAST_SKIP_STEPS, and the job did not skip it",
        ),
    ],
)
def test_the_same_step_on_other_nodes_is_the_data_or_the_code(job, reason) -> None:
    after_stop = decide_job(job, by_name(*healthy_nodes(2)), POLICY, NOW)

    if reason:
        assert isinstance(after_stop, Finish)
        assert after_stop.reason.startswith(reason)
    else:
        assert isinstance(after_stop, Retry)


def test_the_steps_of_all_attempts_and_those_before_them_are_skipped() -> None:
    attempts = (
        attempt(LossAction.SKIP, "node-1", step=30),
        attempt(LossAction.ROLLBACK, "node-1", step=7),
        attempt(LossAction.SKIP, "node-1", step=31),
    )
    job = stopped(LossAction.SKIP, *attempts)

    assert skipped_steps(job.record.attempts) == "29,30,31"
    assert skipped_steps(()) == ""
