"""Numerical faults of jobs: losses that are not finite or that spike, and what follows. Pure."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.model.jobs import AttemptRecord, Failure, LossAction, LossFault, StepReport
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


def worse_fault(known: LossFault | None, other: LossFault | None) -> LossFault | None:
    """Return the fault that counts: the known one, unless it is a spike and the other is not."""
    if known is None or other is None:
        return known or other
    is_worse = Reason.LOSS_NOT_FINITE == other.reason != known.reason
    return other if is_worse else known


def loss_notice(fault: LossFault | None) -> str:
    """Return what a person has to know of a fault that does not stop the job; may be empty."""
    if fault is None or fault.action is not LossAction.ASK:
        return ""
    return (
        f"{fault.evidence}; the job is still running. Check the learning rate and the data of that"
        " step, and cancel the job if the loss stays bad; to stop or roll back such jobs"
        " automatically, set loss_action"
    )


def loss_stop(failure: Failure, attempts: Sequence[AttemptRecord], placement: Sequence[str]) -> str:
    """Return why no attempt follows a failure by the loss; empty if one may.

    The same step on other nodes shows that no node is the cause.

    Args:
        failure: the failure.
        attempts: ended attempts, without the present one.
        placement: nodes of the present attempt.

    """
    if failure.loss_action is None:
        return ""
    before = [
        one
        for one in attempts
        if one.failure is not None
        and (one.failure.reason, one.failure.step) == (failure.reason, failure.step)
    ]
    was_skipped = bool(before) and failure.step in _skipped(attempts)
    if obstacle := action_obstacle(failure.loss_action, failure.step, was_skipped=was_skipped):
        return obstacle
    for one in before:
        if not {*one.placement} & {*placement}:
            return (
                f"the same step failed on other nodes, too (attempt {one.attempt} on "
                f"{', '.join(one.placement)}): the data or the code is the cause, not a node; "
                f"check the batch of step {failure.step}"
            )
    return ""


def action_obstacle(action: LossAction, step: int | None, *, was_skipped: bool) -> str:
    """Return why no restart follows a bad loss, whatever the nodes are; empty if one may.

    Args:
        action: what the settings ask for.
        step: the step.
        was_skipped: whether the step was to be skipped, and had a bad loss all the same.

    """
    if action is LossAction.STOP:
        return "loss_action is stop: check the learning rate and the data, then resubmit"
    if action is LossAction.SKIP and was_skipped:
        return (
            f"step {step} is named in HOLDFAST_SKIP_STEPS, and the job did not skip it: "
            "call holdfast.training.is_skipped before each step"
        )
    return ""


def skipped_steps(attempts: Sequence[AttemptRecord]) -> str:
    """Return the value of ``HOLDFAST_SKIP_STEPS`` after some attempts; may be empty."""
    return steps_text(_bad_steps(attempts))


def steps_text(bad_steps: Iterable[int]) -> str:
    """Return the value of ``HOLDFAST_SKIP_STEPS`` for steps with a bad loss; may be empty.

    As Lightning does, the step before is skipped, too: its update may be the cause.
    """
    return ",".join(map(str, sorted(_with_steps_before(bad_steps))))


def _skipped(attempts: Sequence[AttemptRecord]) -> frozenset[int]:
    return _with_steps_before(_bad_steps(attempts))


def _with_steps_before(bad_steps: Iterable[int]) -> frozenset[int]:
    return frozenset(number for step in bad_steps for number in (step - 1, step))


def _bad_steps(attempts: Sequence[AttemptRecord]) -> Iterator[int]:
    for one in attempts:
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
