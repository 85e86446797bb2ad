"""Bad losses as the cause of a restart inside a job: pure. ``loss_faults`` finds them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.launch_events import LossReported
from holdfast.decisions.launch_state import Failure, JobRounds, Phase
from holdfast.decisions.loss_faults import action_obstacle, steps_text, worse_fault
from holdfast.decisions.loss_settings import bad_loss_text
from holdfast.decisions.restart_rungs import BadStep, RestartHistory
from holdfast.model.jobs import (
    BAD_LOSS_VARIABLE,
    RESTART_REASON_VARIABLE,
    SKIP_STEPS_VARIABLE,
    LossAction,
    LossFault,
)


def with_loss(job: JobRounds, event: LossReported) -> JobRounds:
    """Return the state after a bad loss of the round; one that only is reported stops no rank.

    Where a rank has crashed already, the loss is the cause: many jobs check it, and end.
    """
    fault, known = event.fault, job.failure
    if fault.action is LossAction.ASK:
        return replace(job, loss=worse_fault(job.loss, fault)) if job.phase is Phase.RUN else job
    if job.phase not in (Phase.RUN, Phase.STOP) or not (known is None or _is_crash(known)):
        return job
    text = f"{fault.reason}: {fault.evidence}"
    if known is None:
        failure = Failure(launcher=event.launcher, rank=event.rank, text=text, loss=fault)
    else:
        failure = replace(known, text=f"{text}; {known.text}", loss=fault)
    return replace(job, failure=failure)


def _is_crash(failure: Failure) -> bool:
    """Return whether neither a rank nor an inspection has named another cause."""
    is_named = failure.loss is not None or failure.is_of_node
    return failure.meaning is ExitMeaning.CRASH and not is_named


def loss_obstacle(fault: LossFault | None, history: RestartHistory) -> str:
    """Return why the ranks do not restart after a bad loss; empty if they may."""
    if fault is None:
        return ""
    return action_obstacle(fault.action, fault.step, was_skipped=fault.step in history.skipped)


def restarted(history: RestartHistory, fault: LossFault | None, now: datetime) -> RestartHistory:
    """Return the history of a restart that was for a bad loss; unchanged if it was not."""
    if fault is None:
        return history
    bad = BadStep(reason=fault.reason, step=fault.step, at=now)
    return history.with_loss(bad, is_skipped=fault.action is LossAction.SKIP)


def loss_variables(history: RestartHistory, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of ranks about bad losses of earlier rounds.

    Args:
        history: restarts of the job.
        inherited: environment of the launcher, which may name steps to skip, too.

    """
    variables = {}
    if history.skipped:
        own, outer = steps_text(history.skipped), inherited.get(SKIP_STEPS_VARIABLE, "")
        variables[SKIP_STEPS_VARIABLE] = ",".join(filter(None, (outer, own)))
    if (bad := history.loss) is not None:
        variables[BAD_LOSS_VARIABLE] = bad_loss_text(bad.step, bad.at)
        variables[RESTART_REASON_VARIABLE] = bad.reason
    return variables
