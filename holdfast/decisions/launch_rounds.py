"""Rounds of a job that restarts its ranks without giving its nodes back: pure.

A round is one set of ranks on fixed nodes with one rendezvous. Each node runs a launcher. Launchers
report events to a coordinator, which computes the next state with ``advance`` and sends each
launcher its order, see ``launch_orders``. A new round begins only when no rank of the previous one
is left: each of its launchers has confirmed that, or was lost for longer than its lease is valid.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.launch_causes import awaited_until, with_another, with_cause
from holdfast.decisions.launch_events import (
    CheckpointsVerified,
    Event,
    Failed,
    Inspected,
    Joined,
    LossReported,
    Lost,
    NodeReported,
    Slowed,
    Stopped,
    StopRequested,
    Succeeded,
    Suspected,
)
from holdfast.decisions.launch_inspection import (
    Inspection,
    after_timeout,
    begin,
    concluded,
    with_report,
    with_suspicion,
)
from holdfast.decisions.launch_losses import completed, restarted, with_loss
from holdfast.decisions.launch_nodes import fault_texts, is_usable, next_nodes
from holdfast.decisions.launch_rungs import next_rung, returns_until
from holdfast.decisions.launch_state import (
    EARLIER,
    Failure,
    JobRounds,
    Outcome,
    Phase,
    RoundSettings,
)
from holdfast.decisions.restart_rungs import Rung, beyond_exchange
from holdfast.kit.units import format_duration

Value = TypeVar("Value")


_ENDS: Final = {Rung.FAIL: Outcome.FAILED, Rung.WHOLE_JOB: Outcome.RESTART_JOB}


def advance(
    job: JobRounds, event: Event | None, now: datetime, settings: RoundSettings
) -> JobRounds:
    """Return the state after an event, or after time has passed (None)."""
    if job.phase is Phase.END:
        return _after_end(job, event, now, settings)
    job = _applied(job, event, now, settings) if event is not None else job
    due = {name for name, at in job.fences.items() if at <= now}
    if due:
        fences = {name: at for name, at in job.fences.items() if name not in due}
        job = replace(job, alive=job.alive - due, fences=fences)
    if job.phase is Phase.RUN:
        job = completed(_after_run(job, now, settings), now)
    if job.phase is Phase.STOP and not job.alive:
        job = _after_stop(job, now, settings)
    if job.phase is Phase.GATHER:
        job = _gathered(job, now, settings)
    return job


def next_deadline(job: JobRounds, settings: RoundSettings) -> datetime | None:
    """Return when ``advance`` must be called although nothing has happened; None for never."""
    if job.phase is Phase.END:
        return min((at + settings.return_time for at in job.lost.values()), default=None)
    due = [job.since + settings.join_timeout] if job.phase is Phase.GATHER else []
    if job.awaits_checkpoints(settings):
        due.append(job.since + settings.verify_timeout)
    if job.awaits_lost:
        due.append(returns_until(job, settings))
    if job.inspection is not None and job.phase is Phase.RUN and job.is_inspecting:
        due.append(job.inspection.until)
    if job.losses is not None and job.phase is Phase.RUN and not job.losses.is_complete:
        due.append(job.losses.complete_at)
    until = awaited_until(job, settings) if job.phase is Phase.RUN else None
    if until is not None:
        due.append(until)
    return min([*job.fences.values(), *due], default=None)


def _applied(job: JobRounds, event: Event, now: datetime, settings: RoundSettings) -> JobRounds:
    match event:
        case Joined():
            return _joined(job, event, settings)
        case Lost(launcher=name):
            lost = {**_recently_lost(job, now, settings), name: now}
            return _lost(replace(job, lost=lost), name, now + settings.fence)
        case NodeReported(launcher=name, fault=fault) if name in job.members:
            member = replace(job.members[name], fault=fault)
            return replace(job, members={**job.members, name: member})
        case StopRequested(signal=signum):
            return replace(job, stop_signal=job.stop_signal or signum)
        case Stopped(launcher=name, port=port) if name in job.members:
            members = {**job.members, name: replace(job.members[name], port=port)}
            job = replace(job, members=members)
            if event.round < job.round:
                return job  # higher: by an order with the round of a former coordinator
            waited_s = max(job.waited_s, event.waited_s)
            return replace(job, alive=job.alive - {name}, waited_s=waited_s)
        case CheckpointsVerified(restarts=count) if count == job.history.total:
            if event.obstacle and job.awaits_checkpoints(settings):
                return _ended(job, Outcome.FAILED, event.obstacle, now)
            return replace(job, verified=count)
        case Inspected(launcher=name) if job.inspection is not None and name in job.active:
            return replace(job, inspection=with_report(job.inspection, event))
        case Succeeded() | Failed() | LossReported() | Suspected() | Slowed():
            if event.round == job.round and event.launcher in job.active:
                return _of_round(job, event, now, settings)
    return job  # of an earlier round, or of a launcher that was lost


def _of_round(
    job: JobRounds,
    event: Succeeded | Failed | LossReported | Suspected | Slowed,
    now: datetime,
    settings: RoundSettings,
) -> JobRounds:
    """Return the state after an event of a launcher of the round."""
    match event:
        case Succeeded():
            return replace(job, succeeded=job.succeeded | {event.launcher})
        case LossReported():
            return with_loss(job, event, now)
        case Suspected():
            return replace(job, inspection=with_suspicion(job.inspection, event, now))
        case Slowed():
            return _slowed(job, event, now, settings)
    failure = Failure(
        launcher=event.launcher,
        rank=event.rank,
        code=event.code,
        meaning=event.meaning,
        text=event.text,
    )
    if job.failure is not None:
        return with_another(job, event)
    return _failed(job, event, with_cause(failure, event, job, now, settings), now)


def _failed(job: JobRounds, event: Failed, failure: Failure, now: datetime) -> JobRounds:
    """Return the state after a failure; one that another rank has caused is inspected first."""
    if job.phase is not Phase.RUN:
        return job
    if job.timed_out is not None and (event.has_timed_out or event.is_consequence):
        return job
    if not event.has_timed_out:
        return replace(job, failure=failure)
    suspicion = after_timeout(event, now - job.since)
    return replace(job, timed_out=failure, inspection=begin(job.inspection, suspicion, now))


def _slowed(job: JobRounds, event: Slowed, now: datetime, settings: RoundSettings) -> JobRounds:
    """Return the state after a straggler: a restart costs, so only a spare is worth one."""
    if not settings.exchanges_suspects or job.phase is not Phase.RUN or job.is_inspecting:
        return job
    if event.rank == job.history.moved_rank:  # it was slow on another node, too
        return job
    failure = Failure(launcher=event.launcher, rank=event.rank, text=event.text, is_of_node=True)
    _, choice = next_rung(job, failure, now, settings)
    return replace(job, failure=job.failure or failure) if choice.rung is Rung.SPARE else job


def _joined(job: JobRounds, event: Joined, settings: RoundSettings) -> JobRounds:
    name = event.member.name
    failure, fences = job.failure, _without(job.fences, name)
    if (event.round or settings.may_succeed_another) and not job.round:
        fences[EARLIER] = job.since + settings.lease + settings.fence
    is_in_round = job.phase is Phase.RUN and name in job.active
    if is_in_round and name not in job.succeeded:  # it ended its ranks before it joined again
        failure = failure or Failure(launcher=name, text="the launcher reconnected")
    return replace(
        job,
        members={**_without(job.members, name), name: event.member},
        alive=job.alive - {name},
        lost=_without(job.lost, name),
        fences=fences,
        failure=failure,
        history=max(job.history, event.history, key=lambda one: one.total),
        floor=max(job.floor, event.round),
    )


def _lost(job: JobRounds, name: str, ended_at: datetime) -> JobRounds:
    members = _without(job.members, name)
    if name not in job.active or job.phase not in (Phase.RUN, Phase.STOP):
        return replace(job, members=members)
    fences = {**job.fences, name: ended_at} if name in job.alive else job.fences
    if name in job.succeeded and job.phase is Phase.RUN:
        return replace(job, members=members, fences=fences)
    failure = Failure(launcher=name, text="its launcher was lost")
    return replace(job, members=members, fences=fences, failure=job.failure or failure)


def _inspected(
    job: JobRounds, inspection: Inspection, now: datetime, settings: RoundSettings
) -> JobRounds:
    first = job.timed_out
    awaited = job.alive if first is None else job.active.keys() & job.members.keys()
    after, hung = concluded(inspection, awaited, now)
    failure = job.failure
    if hung is not None:
        failure = failure or Failure(
            launcher=hung.launcher,
            rank=hung.rank,
            text=hung.text,
            is_of_node=hung.is_node_side
            and settings.exchanges_suspects
            and hung.rank != job.history.moved_rank,
        )
    if first is not None and after.verdict is not None:
        # The inspection was open before, for a suspicion that restarts nothing or was wrong.
        text = "; ".join(filter(None, (first.text, after.verdict)))
        failure = failure or replace(first, text=text)
    return replace(job, inspection=after, failure=failure)


def _after_run(job: JobRounds, now: datetime, settings: RoundSettings) -> JobRounds:
    if job.inspection is not None and job.is_inspecting:
        job = _inspected(job, job.inspection, now, settings)
    until = awaited_until(job, settings)
    if until is not None and now < until:
        return job
    failure = job.failure or _node_failure(job, now, settings)
    if job.stop_signal or failure is not None:
        return replace(job, phase=Phase.STOP, since=now, waited_s=0.0, failure=failure)
    if job.succeeded >= set(job.active):
        lost = _recently_lost(job, now, settings)
        return replace(_ended(job, Outcome.SUCCEEDED, "all ranks succeeded", now), lost=lost)
    return job


def _node_failure(job: JobRounds, now: datetime, settings: RoundSettings) -> Failure | None:
    """Return the failure of a node that is being repaired if hot spares can replace it now.

    Without them, the ranks run on until one of them fails or the repair ends them.
    """
    members = job.members
    bad = [name for name in job.active if name in members and not is_usable(members[name])]
    if not bad or job.succeeded:
        return None
    failure = Failure(launcher=bad[0], text=fault_texts(members, bad[:1]))
    _, choice = next_rung(job, failure, now, settings)
    return failure if choice.rung is Rung.SPARE else None


def _after_stop(job: JobRounds, now: datetime, settings: RoundSettings) -> JobRounds:
    if job.stop_signal or job.failure is None:
        return _ended(job, Outcome.INTERRUPTED, f"signal {job.stop_signal}", now)
    nodes, choice = next_rung(job, job.failure, now, settings)
    if choice.rung in _ENDS:
        return _ended(job, _ENDS[choice.rung], choice.why, now)
    if choice.rung is Rung.WAIT:
        return job
    is_moved = job.failure.meaning is ExitMeaning.ANOTHER_DEVICE
    leaving = frozenset(nodes.leaving[: choice.nodes])
    return replace(
        job,
        phase=Phase.GATHER,
        since=now,
        members=dict(sorted(job.members.items(), key=lambda one: one[0] in leaving)),
        history=restarted(
            job.history.since(now - settings.budget.period).with_restart(
                choice,
                nodes.cause,
                now,
                job.failure.cause,
                job.failure.rank if job.failure.is_of_node and leaving else -1,
            ),
            job.failure.loss,
            job.since,  # ranks may have saved since, on the signal to end
        ),
        leaving=leaving,
        rotation=job.rotation + (choice.rung is Rung.IN_PLACE and is_moved),
        why=choice.why,
    )


def _gathered(job: JobRounds, now: datetime, settings: RoundSettings) -> JobRounds:
    if job.stop_signal:
        return _ended(job, Outcome.INTERRUPTED, f"signal {job.stop_signal}", now)
    last = max(job.round, job.floor)
    members, nodes = job.members, settings.nodes
    bad = [name for name, member in members.items() if last and not is_usable(member)]
    if len(members) - len(bad) < nodes:
        return _ungathered(job, bad, now, settings)
    if job.awaits_checkpoints(settings) and now >= job.since + settings.verify_timeout:
        limit = format_duration(settings.verify_timeout)
        why = f"checkpoints were not verified within {limit} after a bad loss; check their storage"
        return _ended(job, Outcome.FAILED, why, now)
    if job.fences or job.awaits_checkpoints(settings):
        return job
    names = next_nodes(job.active, members, job.leaving, job.history, (nodes, settings.budget))
    return replace(
        job,
        phase=Phase.RUN,
        since=now,
        round=last + 1,
        active={name: members[name] for name in names},
        history=job.history.without_exchanges(len(job.leaving & {*names})),
        alive=frozenset(names),
        succeeded=frozenset(),
        failure=None,
        ended_by=job.failure,
        losses=None,
        leaving=frozenset(),
        timed_out=None,
    )


def _ungathered(
    job: JobRounds, bad: list[str], now: datetime, settings: RoundSettings
) -> JobRounds:
    """Return the state while there are too few launchers on good nodes: the timeout ends it."""
    if now < job.since + settings.join_timeout:
        return job
    why = f"timed out: {len(job.members) - len(bad)} of {settings.nodes} launchers joined"
    why = "; ".join(filter(None, (why, fault_texts(job.members, bad))))
    if job.round:
        choice = beyond_exchange(why, settings.budget)
        return _ended(job, _ENDS[choice.rung], why, now)
    return _ended(job, Outcome.FAILED, why, now)


def _ended(job: JobRounds, outcome: Outcome, why: str, now: datetime) -> JobRounds:
    return replace(job, phase=Phase.END, since=now, outcome=outcome, why=why, lost={})


def _after_end(
    job: JobRounds, event: Event | None, now: datetime, settings: RoundSettings
) -> JobRounds:
    """Return the state without the lost launchers that have joined again or had their time."""
    lost = _recently_lost(job, now, settings)
    if isinstance(event, Joined):
        lost = _without(lost, event.member.name)
    return replace(job, lost=lost)


def _recently_lost(job: JobRounds, now: datetime, settings: RoundSettings) -> dict[str, datetime]:
    """Return the launchers that may join again."""
    return {name: at for name, at in job.lost.items() if now < at + settings.return_time}


def _without(table: Mapping[str, Value], name: str) -> dict[str, Value]:
    return {key: value for key, value in table.items() if key != name}
