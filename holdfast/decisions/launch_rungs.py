"""The next rung of the restart ladder after a failure of a round: pure."""

from dataclasses import replace
from datetime import datetime

from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.launch_causes import permanent_cause
from holdfast.decisions.launch_losses import loss_obstacle
from holdfast.decisions.launch_nodes import RoundNodes, fault_texts, round_nodes
from holdfast.decisions.launch_state import Failure, JobRounds, Phase, RoundSettings
from holdfast.decisions.restart_rungs import Cause, RungChoice, choose_rung


def next_rung(
    job: JobRounds, failure: Failure, now: datetime, settings: RoundSettings
) -> tuple[RoundNodes, RungChoice]:
    """Return the next rung after a failure, and with which nodes."""
    budget, history = settings.budget, job.history.since(now - settings.budget.period)
    nodes = round_nodes(
        job.active,
        job.members,
        history,
        budget,
        failed="" if failure.loss is not None else failure.launcher,
        moves=failure.is_of_node or failure.meaning is ExitMeaning.ANOTHER_DEVICE,
        can_exchange=settings.can_join,
    )
    is_final = failure.meaning is ExitMeaning.STOP
    text = f"exit code {failure.code} requests no restart" if is_final else failure.text
    obstacle = loss_obstacle(failure.loss, history)
    if not nodes.means.missing:  # a fault of the node may be the cause
        obstacle = obstacle or permanent_cause(failure, job, settings)
    if obstacle:
        is_final, text = True, f"{text}; {obstacle}"
    fault = fault_texts(job.members, [nodes.cause] if nodes.means.missing else ())
    if fault and fault != text:
        text = f"{text}; {fault}"
    means = replace(nodes.means, may_return=_may_return(job, now, settings))
    return nodes, choose_rung(Cause(text=text, is_final=is_final), means, history, budget)


def returns_until(job: JobRounds, settings: RoundSettings) -> datetime:
    """Return until when lost launchers of a round that is being stopped are awaited.

    A cut of the network, or a pause of the coordinator, loses many launchers at once, and often
    more than may be exchanged. They join again as soon as they reach the coordinator.
    """
    return job.since + settings.join_timeout


def _may_return(job: JobRounds, now: datetime, settings: RoundSettings) -> bool:
    is_lost = any(name not in job.members for name in job.active)
    is_stopping = settings.can_join and job.phase is Phase.STOP
    return is_lost and is_stopping and now < returns_until(job, settings)
