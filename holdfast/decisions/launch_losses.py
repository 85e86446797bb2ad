"""Bad losses as the cause of a restart inside a job: pure. ``loss_faults`` finds them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.launch_events import LossReported, Member
from holdfast.decisions.launch_state import Failure, JobRounds, Phase, RankLosses
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

REPORTS: Final = timedelta(seconds=3)
"""Time for ranks to report the same bad loss; launchers read their reports once a second."""

_NAMED: Final = 8
"""Maximum number of nodes that a message names."""


def with_loss(job: JobRounds, event: LossReported, now: datetime) -> JobRounds:
    """Return the state after a bad loss of the round; one that only is reported stops no rank.

    Where a rank has crashed already, the loss is the cause: many jobs check it, and end.
    """
    fault, known = event.fault, job.failure
    if not event.ranks:
        return job
    if fault.action is LossAction.ASK:
        is_running = job.phase is Phase.RUN
        return replace(job, losses=_joined(job.losses, event, now)) if is_running else job
    if job.phase not in (Phase.RUN, Phase.STOP) or not (known is None or _is_crash(known)):
        return job
    text = f"{fault.reason}: {fault.evidence}"
    if known is None:
        failure = Failure(launcher=event.launcher, rank=event.ranks[0], text=text, loss=fault)
    else:
        failure = replace(known, text=f"{text}; {known.text}", loss=fault)
    return replace(job, failure=failure)


def _joined(known: RankLosses | None, event: LossReported, now: datetime) -> RankLosses:
    """Return what is known of the bad losses of a round after one more report.

    The ranks of the earliest step count: after a step, a NaN of one rank is one of all ranks.
    """
    fault = event.fault
    reported = RankLosses(
        fault=fault, ranks=dict.fromkeys(event.ranks, event.launcher), complete_at=now + REPORTS
    )
    if known is None or worse_fault(known.fault, fault) is not known.fault:
        return reported
    if known.is_complete or fault.reason != known.fault.reason or fault.step > known.fault.step:
        return known
    if fault.step < known.fault.step:
        return replace(reported, complete_at=known.complete_at)
    return replace(known, ranks={**known.ranks, **reported.ranks})


def completed(job: JobRounds, now: datetime) -> JobRounds:
    """Return the state in which the bad loss of the round is complete, if that is due."""
    losses = job.losses
    if losses is None or losses.is_complete:
        return job
    if now < losses.complete_at and job.phase is Phase.RUN:
        return job
    return replace(job, losses=replace(losses, is_complete=True))


def reporters(losses: RankLosses, active: Mapping[str, Member]) -> str:
    """Return which ranks reported a bad loss, for people to read.

    Args:
        losses: the bad loss.
        active: launchers of the round.

    """
    total = sum(member.slots for member in active.values())
    if 1 < total <= len(losses.ranks):
        return "all ranks"
    of_launcher: dict[str, list[int]] = {}
    for rank, launcher in sorted(losses.ranks.items()):
        of_launcher.setdefault(launcher, []).append(rank)
    named = [f"{_ranks(ranks)} on {launcher}" for launcher, ranks in of_launcher.items()]
    more = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and ranks on {more} more nodes" if more > 0 else "")


def _ranks(ranks: Sequence[int]) -> str:
    """Return the ranks of a launcher; those of one node are often consecutive."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"


def _is_crash(failure: Failure) -> bool:
    """Return whether neither a rank nor an inspection has named another cause."""
    is_named = failure.loss is not None or failure.is_of_node
    return failure.meaning is ExitMeaning.CRASH and not is_named


def loss_obstacle(fault: LossFault | None, history: RestartHistory) -> str:
    """Return why the ranks do not restart after a bad loss; empty if they may."""
    if fault is None:
        return ""
    return action_obstacle(fault.action, fault.step, was_skipped=fault.step in history.skipped)


def restarted(history: RestartHistory, fault: LossFault | None, at: datetime) -> RestartHistory:
    """Return the history of a restart that was for a bad loss; unchanged if it was not.

    Args:
        history: history with the restart.
        fault: the loss, if it was the cause.
        at: time at which the ranks were ordered to stop for it.

    """
    if fault is None:
        return history
    bad = BadStep(reason=fault.reason, step=fault.step, at=at)
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
