"""Steps and losses in the logs of several ranks, and the text forms of the settings."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.job_lifecycle import after_job, launched
from holdfast.decisions.job_resume import ResumePolicy, decide_job
from holdfast.decisions.logged_steps import LoggedSteps, after_lines
from holdfast.decisions.loss_faults import LossLimits
from holdfast.decisions.loss_settings import (
    VARIABLES,
    bad_loss,
    parse_bad_loss,
    parse_loss_limits,
)
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.model.actions import StartAttempt, StopAttempt, Wait
from holdfast.model.job_views import RankView
from holdfast.model.jobs import Failure, FailureKind, JobPhase, LossAction
from holdfast.model.names import Reason
from tests.ports.builders import NOW, a_job, by_name, healthy_nodes

LIMITS = LossLimits()
POLICY = ResumePolicy(job=JobPolicy(), nodes=RemediationPolicy())
LOSSES = st.floats(0.01, 1e6) | st.sampled_from([math.nan, math.inf])


def line(step: int, loss: float) -> str:
    return f"step: {step:2}  loss: {loss:8.5f}  grad_norm:  1.2000"


def shown(*lines: tuple[int, int, float], limits: LossLimits = LIMITS) -> LoggedSteps:
    """Return what is known after lines, each with its rank, step and loss."""
    steps = LoggedSteps()
    for rank, step, loss in lines:
        steps = after_lines(steps, rank, [line(step, loss)], limits, where=f"node rank {rank}")
    return steps


def test_ranks_with_losses_of_their_own_are_no_spike() -> None:
    steps = shown(*[(rank, step, 1.0 + 9 * rank) for step in range(5) for rank in (0, 1)])

    assert steps.fault is None
    assert (steps.first, steps.last) == (0, 4)


def test_the_evidence_names_the_rank_and_a_nan_in_two_ranks_is_one_fault() -> None:
    steps = shown((0, 1, 1.0), (1, 1, 1.0), (1, 2, math.nan), (0, 2, math.nan))

    assert steps.fault is not None
    assert steps.fault.evidence == "all ranks that log losses: the loss is nan at step 2"
    assert steps.fault.step == 2


def test_the_ranks_that_report_a_loss_are_named_as_far_as_they_are_known() -> None:
    healthy = ((0, 1, 1.0), (1, 1, 1.0), (2, 1, 1.0))
    text = "the loss is nan at step 2"

    one = shown(*healthy, (1, 2, math.nan)).fault
    two = shown(*healthy, (1, 2, math.nan), (0, 2, math.nan), (2, 2, 1.0)).fault
    later = shown(*healthy, (1, 2, math.nan), (0, 3, math.nan), (2, 3, math.nan)).fault
    assert one is not None
    assert two is not None
    assert one.evidence == f"node rank 1: {text}"
    assert two.evidence == f"node rank 0, node rank 1: {text}"
    assert later == one, "the rank of the first step"


def test_the_evidence_of_a_loss_that_stops_the_job_does_not_change() -> None:
    limits = LossLimits(action=LossAction.ROLLBACK)
    steps = shown((0, 1, 1.0), (1, 1, 1.0), (1, 2, math.nan), (0, 2, math.nan), limits=limits)

    assert steps.fault is not None
    assert steps.fault.evidence == "node rank 1: the loss is nan at step 2"


def test_logs_of_unknown_ranks_name_none_and_many_ranks_are_not_all_named() -> None:
    steps = LoggedSteps()
    for log in (0, 1):
        steps = after_lines(steps, log, [line(2, math.nan)], LIMITS)
    assert steps.fault is not None
    assert steps.fault.evidence == "the loss is nan at step 2"

    steps = shown((99, 1, 1.0), *((rank, 2, math.nan) for rank in range(10)))
    assert steps.fault is not None
    assert "node rank 7 and 2 more: the loss is nan" in steps.fault.evidence


def test_a_nan_of_another_rank_counts_more_than_a_spike_before() -> None:
    steps = shown((0, 1, 1.0), (0, 2, 9.0), (1, 3, math.nan), (0, 4, math.nan))

    assert steps.fault is not None
    assert (steps.fault.reason, steps.fault.step) == (Reason.LOSS_NOT_FINITE, 3)


@given(st.lists(st.tuples(st.integers(0, 3), LOSSES), max_size=30), st.integers(1, 7))
def test_lines_have_the_same_result_in_any_portions(found, size) -> None:
    lines = [(rank, line(step, loss)) for step, (rank, loss) in enumerate(found)]
    by_one = LoggedSteps()
    for rank, text in lines:
        by_one = after_lines(by_one, rank, [text], LIMITS)
    for rank in {which for which, _ in lines}:
        own = [text for which, text in lines if which == rank]
        whole, parts = LoggedSteps(), LoggedSteps()
        whole = after_lines(whole, rank, own, LIMITS)
        for start in range(0, len(own), size):
            parts = after_lines(parts, rank, own[start : start + size], LIMITS)
        assert parts == whole
        assert repr(by_one.losses.get(rank)) == repr(whole.losses.get(rank))
    assert (by_one.fault is None) <= all(math.isfinite(loss) for _, loss in found)


@given(st.lists(st.text(max_size=60), max_size=20))
def test_no_text_raises(lines) -> None:
    after_lines(LoggedSteps(), 0, lines, LIMITS)


def test_our_own_report_of_a_fault_is_no_step() -> None:
    steps = after_lines(
        LoggedSteps(), 0, ["holdfast: JobLossFault: the loss is nan at step 12; ..."], LIMITS
    )

    assert steps.last is None
    assert steps.fault is None


def failing_job(action: LossAction):
    """A running job whose log shows a NaN at step 30, and two nodes."""
    fault = shown((0, 30, math.nan), limits=LossLimits(action=action)).fault
    return replace(a_job(), step=30, loss_fault=fault)


@pytest.mark.parametrize("action", [LossAction.ROLLBACK, LossAction.STOP])
def test_a_rank_that_ends_itself_because_of_its_loss_is_a_loss_fault(action: LossAction) -> None:
    ranks = (
        RankView(rank=0, node="node-1", exit_code=1, ended_at=NOW - timedelta(minutes=1)),
        RankView(rank=1, node="node-2", exit_code=1, ended_at=NOW - timedelta(minutes=1)),
    )

    stop = decide_job(
        replace(failing_job(action), ranks=ranks), by_name(*healthy_nodes(2)), POLICY, NOW
    )

    assert isinstance(stop, StopAttempt)
    assert stop.failure is not None
    assert (stop.failure.reason, stop.failure.loss_action) == (Reason.LOSS_NOT_FINITE, action)
    assert "node rank 0 exited with code 1" in stop.failure.evidence


def test_a_rank_that_ends_after_a_spike_or_while_a_person_decides_has_exited() -> None:
    ranks = (RankView(rank=0, node="node-1", exit_code=1, ended_at=NOW - timedelta(minutes=1)),)
    spiked = failing_job(LossAction.ROLLBACK)
    assert spiked.loss_fault is not None
    spiked = replace(
        spiked, ranks=ranks, loss_fault=replace(spiked.loss_fault, reason=Reason.LOSS_SPIKED)
    )

    for job in (spiked, replace(failing_job(LossAction.ASK), ranks=ranks)):
        stop = decide_job(job, by_name(*healthy_nodes(2)), POLICY, NOW)
        assert isinstance(stop, StopAttempt)
        assert stop.failure is not None
        assert stop.failure.reason == Reason.RANK_EXITED


@given(
    st.integers(0, 6), st.integers(1, 5), st.sampled_from([LossAction.ROLLBACK, LossAction.SKIP])
)
def test_a_nan_at_the_first_step_of_each_attempt_ends_within_the_budget(
    retries: int, limit: int, action: LossAction
) -> None:
    job, now, starts = failing_job(action), NOW, 1
    job = replace(
        job, spec=replace(job.spec, max_app_retries=retries, same_step_limit=limit, nodes=2)
    )
    fault = job.loss_fault
    while not job.record.phase.is_final:
        now += timedelta(hours=1)
        nodes = by_name(*(replace(node, heartbeat_at=now) for node in healthy_nodes(2)))
        choice = decide_job(job, nodes, POLICY, now)
        assert not isinstance(choice, Wait), choice
        record = after_job(job, choice, now)
        if isinstance(choice, StartAttempt):
            starts += 1
            record = launched(record, now)
        is_running = record.phase is JobPhase.RUNNING
        job = replace(
            job,
            record=record,
            ranks=a_job().ranks if is_running else (),
            loss_fault=fault if is_running else None,
            step=30,
        )
        assert starts <= min(retries + 1, limit)

    assert job.record.phase is JobPhase.FAILED


@pytest.mark.parametrize(
    ("given_", "limits", "keys"),
    [
        ({}, None, []),
        ({"action": "", "window": " "}, None, []),
        ({"action": "skip"}, LossLimits(action=LossAction.SKIP), []),
        ({"window": "20", "tolerance": "0"}, LossLimits(window=20, tolerance=0), []),
        ({"action": "Skip"}, LossLimits(), ["action"]),
        ({"window": "0", "tolerance": "-1"}, LossLimits(), ["window", "tolerance"]),
        ({"window": "1.5", "tolerance": "nan"}, LossLimits(), ["window", "tolerance"]),
        ({"window": "10001", "tolerance": "inf"}, LossLimits(), ["window", "tolerance"]),
        ({"window": "1e4", "tolerance": "1.5"}, LossLimits(window=10_000, tolerance=1.5), []),
    ],
)
def test_invalid_settings_are_named_and_their_defaults_apply(given_, limits, keys) -> None:
    found, problems = parse_loss_limits(
        {getattr(VARIABLES, key): value for key, value in given_.items()}, VARIABLES
    )

    assert found == limits
    assert [one.key for one in problems] == [getattr(VARIABLES, key) for key in keys]


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_no_setting_raises(action, window, tolerance) -> None:
    texts = {VARIABLES.action: action, VARIABLES.window: window, VARIABLES.tolerance: tolerance}

    found, problems = parse_loss_limits(texts, VARIABLES)

    assert found is None or found.window >= 1
    assert len(problems) <= 3


@given(st.integers(0, 10**18 - 1), st.integers(10**12, 4 * 10**12))
def test_the_bad_loss_of_a_failure_is_read_as_written(step: int, milliseconds: int) -> None:
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    failure = Failure(
        kind=FailureKind.APPLICATION,
        reason=Reason.LOSS_NOT_FINITE,
        at=at,
        step=step,
        loss_action=LossAction.ROLLBACK,
    )

    assert parse_bad_loss(bad_loss(failure)) == (step, at)
    assert bad_loss(replace(failure, loss_action=None)) == bad_loss(None) == ""


@given(st.text(max_size=40))
def test_no_bad_loss_raises(text: str) -> None:
    found = parse_bad_loss(text)

    assert found is None or found[1].tzinfo is not None


@pytest.mark.parametrize(
    "text", ["", "7", "7@", "7@2026-01-01T00:00:00", "-7@2026-01-01T00:00:00Z"]
)
def test_a_bad_loss_without_a_time_or_a_step_is_none(text: str) -> None:
    assert parse_bad_loss(text) is None
