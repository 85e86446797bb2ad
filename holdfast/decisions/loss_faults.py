"""Numerical faults of jobs: losses that are not finite or that spike, and what follows. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.decisions.job_failures import application
from holdfast.model.jobs import Failure, JobRecord, JobView, LossAction, LossFault, StepReport
from holdfast.model.names import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class LossLimits:
    """When a loss is a fault, and what follows.

    The rule and its defaults are those of Lightning's ``SpikeDetection``.
    """

    action: LossAction = LossAction.ASK
    window: int = 10
    """Number of losses whose mean a loss is compared with."""

    tolerance: float = 2.0
    """A loss has spiked if it is above the one before, and differs from the mean by this multiple
    of the mean or more. 0 means that spikes are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossHistory:
    """Losses of one attempt."""

    recent: tuple[float, ...] = ()
    """Last losses that were no fault, oldest first, at most ``LossLimits.window``."""

    fault: LossFault | None = None
    """First loss that is not finite, or else the first spike."""


def after_report(history: LossHistory, report: StepReport, limits: LossLimits) -> LossHistory:
    """Return the history after one more report; a fault never enters the mean."""
    loss = report.loss
    if loss is None:
        return history
    if not math.isfinite(loss):
        known = history.fault
        if known is not None and known.reason == Reason.LOSS_NOT_FINITE:
            return history
        what = f"the loss is {loss} at step {report.step}"
        return replace(history, fault=_fault(Reason.LOSS_NOT_FINITE, report, what, limits))
    if _is_spike(history.recent, loss, limits):
        if history.fault is not None:
            return history
        mean = _mean(history.recent)
        what = (
            f"the loss rose to {loss:.6g} at step {report.step}, the mean of the last "
            f"{len(history.recent)} is {mean:.6g}"
        )
        return replace(history, fault=_fault(Reason.LOSS_SPIKED, report, what, limits))
    return replace(history, recent=(*history.recent, loss)[-limits.window :])


def loss_failure(job: JobView, now: datetime) -> Failure | None:
    """Return why an attempt is stopped for its loss; None if it runs on."""
    fault = job.loss_fault
    if fault is None or fault.action is LossAction.ASK:
        return None
    failure = application(job, now, fault.reason, "", fault.evidence)
    return replace(failure, step=fault.step, loss_action=fault.action)


def loss_notice(fault: LossFault | None) -> str:
    """Return what a person has to know of a fault that does not stop the job; may be empty."""
    if fault is None or fault.action is not LossAction.ASK:
        return ""
    return (
        f"{fault.evidence}; the job runs on. Check the learning rate and the data of that step; to "
        "stop the job, run: holdfast jobs cancel; to have it stopped or rolled back next time, "
        "set jobs.loss_action"
    )


def loss_stop(job: JobView, failure: Failure) -> str:
    """Return why no attempt follows a failure by the loss; empty if one may.

    The same step on other nodes shows that no node is the cause.
    """
    if failure.loss_action is LossAction.STOP:
        return "jobs.loss_action is stop: check the learning rate and the data, then resubmit"
    if failure.loss_action is None:
        return ""
    before = [
        one
        for one in job.record.attempts
        if one.failure is not None
        and (one.failure.reason, one.failure.step) == (failure.reason, failure.step)
    ]
    skipped = _skipped(job.record)
    if failure.loss_action is LossAction.SKIP and before and failure.step in skipped:
        return (
            f"step {failure.step} is named in HOLDFAST_SKIP_STEPS, and the job did not skip it: "
            "call holdfast.training.is_skipped before each step"
        )
    for one in before:
        if not {*one.placement} & {*job.record.placement}:
            return (
                f"the same step failed on other nodes, too (attempt {one.attempt} on "
                f"{', '.join(one.placement)}): the data or the code is the cause, not a node; "
                f"check the batch of step {failure.step}"
            )
    return ""


def skipped_steps(record: JobRecord) -> str:
    """Return the value of ``HOLDFAST_SKIP_STEPS`` for the next attempt; may be empty.

    As Lightning does, the step before is skipped, too: its update may be the cause.
    """
    return ",".join(map(str, sorted(_skipped(record))))


def _skipped(record: JobRecord) -> frozenset[int]:
    return frozenset(number for step in _bad_steps(record) for number in (step - 1, step))


def _bad_steps(record: JobRecord) -> Iterator[int]:
    for one in record.attempts:
        failure = one.failure
        if failure is not None and failure.loss_action is LossAction.SKIP and failure.step:
            yield failure.step


def _fault(reason: Reason, report: StepReport, what: str, limits: LossLimits) -> LossFault:
    return LossFault(reason=reason, step=report.step, evidence=what, action=limits.action)


def _is_spike(recent: tuple[float, ...], loss: float, limits: LossLimits) -> bool:
    if not limits.tolerance or not recent or loss <= recent[-1]:
        return False
    mean = _mean(recent)
    return abs(loss - mean) >= limits.tolerance * abs(mean)


def _mean(values: tuple[float, ...]) -> float:
    return math.fsum(values) / len(values)
