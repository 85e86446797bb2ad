"""What needs a person: jobs that wait, repairs that do not proceed, agents that are silent.

Commands and the console show these items first. They are derived from stored state alone, so that
they are the same whether a controller runs or not.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast.decisions.planned_work import is_planned, is_requested_check
from holdfast.decisions.save_age import overdue_since, steps_at_risk
from holdfast.decisions.watched_fleets import WatchedFleet, WatchedJob, WatchedNode
from holdfast.kit.units import DAY, HOUR, counted, format_duration
from holdfast.model.health import Remedy, Urgency
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobPhase
from holdfast.model.nodes import Phase, Remediation
from holdfast.model.sagemaker import EventLevel

_NAMED: Final = 3
"""Maximum number of nodes that a message names, so that it fits two lines of a terminal."""


class Topic(StrEnum):
    """What an item is about, the most urgent first."""

    BREAKER = "breaker open"
    STALLED_JOB = "job stalled"
    FAILED_JOB = "job failed"
    FAILED_REPAIR = "repair failed"
    PROVIDER_REFUSES = "provider refuses"
    REPAIR_WAITS = "repair waits"
    REPAIR_PAUSED = "repair paused"
    OVERDUE_CHECKPOINT = "checkpoint overdue"
    SILENT_AGENT = "agent silent"
    PLANNED_WAITS = "planned work waits"
    """Requested work on a node without a fault."""


_Pool = tuple[str, str]

_URGENCY: Final = {topic: number for number, topic in enumerate(Topic)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One item that needs a person."""

    topic: Topic
    fleet: str
    node: str = ""
    """Node that it is about; empty if it is about a job or the fleet."""

    job: str = ""
    """Reference of the job that it is about; empty if it is about a node or the fleet."""

    since: datetime
    what: str
    """What happened, to what."""

    next: str
    """Next step of the operator."""

    level: EventLevel = EventLevel.ERROR
    """``INFO`` if nothing is wrong: the item is about planned work."""


def needs_attention(fleets: Iterable[WatchedFleet], now: datetime) -> list[Attention]:
    """Return what needs a person, the most urgent first, of equal urgency the oldest first.

    Of a fleet that is not active, only its jobs count: nothing repairs its nodes.
    """
    found = [one for fleet in fleets for one in _of_fleet(fleet, now)]
    return sorted(found, key=lambda one: (_URGENCY[one.topic], one.since, one.what))


def _of_fleet(fleet: WatchedFleet, now: datetime) -> Iterator[Attention]:
    yield from _failed_jobs(fleet, now)
    if not fleet.is_active:
        return
    tripped_at = fleet.breaker.tripped_at
    if tripped_at is not None:
        yield Attention(
            topic=Topic.BREAKER,
            fleet=fleet.name,
            since=tripped_at,
            what=(
                f"circuit breaker of {fleet.name} open for {format_duration(now - tripped_at)}, "
                f"all repairs paused: {fleet.breaker.reason}"
            ),
            next="inspect the nodes, then run: holdfast nodes reset-breaker",
        )
    yield from _stalled(fleet, now)
    for job in fleet.jobs:
        yield from _overdue(job, fleet, now)
    replacements = _replacements(fleet, now)
    for node in fleet.nodes:
        item = _of_node(node, fleet, now, replacements)
        if item is not None:
            yield item


def _failed_jobs(fleet: WatchedFleet, now: datetime) -> Iterator[Attention]:
    """Yield jobs that failed in the last day."""
    for job in fleet.jobs:
        has_failed = job.phase == JobPhase.FAILED or job.is_interrupted
        if has_failed and now - job.phase_since < DAY:
            verb = "interrupted" if job.is_interrupted else "failed"
            yield Attention(
                topic=Topic.FAILED_JOB,
                fleet=fleet.name,
                job=job.ref,
                since=job.phase_since,
                what=f"{job.ref} {verb} {format_duration(now - job.phase_since)} ago: {job.reason}",
                next=f"find the cause with: holdfast jobs describe {job.ref}",
            )


class _Supply:
    """Nodes of a fleet for waiting jobs, counted once for all of them."""

    def __init__(self, nodes: Iterable[WatchedNode]) -> None:
        self._usable: Counter[tuple[_Pool, str]] = Counter()
        """Nodes that can take ranks by pool and the only job on them, empty for none."""

        self._away: list[WatchedNode] = []
        for one in nodes:
            if one.phase is not Phase.SCHEDULABLE:
                self._away.append(one)
            elif _is_usable(one):
                self._usable[one.pool, next(iter(one.jobs), "")] += 1
        self._away.sort(key=lambda one: (one.phase_since, one.name))

    def has(self, job: WatchedJob) -> int:
        """Return the number of nodes that a job could start on now."""
        return sum(
            count
            for (pool, owner), count in self._usable.items()
            if owner in ("", job.ref) and (not job.last_pools or pool in job.last_pools)
        )

    def away(self, job: WatchedJob) -> list[WatchedNode]:
        """Return nodes out of service that could take ranks of a job, the longest away first."""
        if not job.last_pools:
            return self._away
        return [one for one in self._away if one.pool in job.last_pools]


def _stalled(fleet: WatchedFleet, now: datetime) -> Iterator[Attention]:
    """Yield the jobs that wait for more nodes than they could start on now."""
    waiting = [job for job in fleet.jobs if job.phase == JobPhase.WAITING]
    if not waiting:
        return
    supply, usual = _Supply(fleet.nodes), _usual_repairs(fleet.incidents)
    for job in waiting:
        has = supply.has(job)
        if has < job.nodes:
            yield _stalled_job(job, fleet, now, (has, supply.away(job), usual))


def _stalled_job(
    job: WatchedJob,
    fleet: WatchedFleet,
    now: datetime,
    supply: tuple[int, list[WatchedNode], dict[str, timedelta]],
) -> Attention:
    """Return the item of a job; ``supply`` are usable nodes, nodes away and usual repairs."""
    has, away, usual = supply
    is_enough = has + len(away) >= job.nodes
    named = [_returning(one, fleet, usual, now) for one in away[:_NAMED]]
    if len(away) > _NAMED:
        named.append(f"{len(away) - _NAMED} more are out of service")
    return Attention(
        topic=Topic.STALLED_JOB,
        fleet=fleet.name,
        job=job.ref,
        since=job.phase_since,
        what="; ".join(
            [
                f"{job.ref} has waited {format_duration(now - job.phase_since)}: needs "
                f"{counted(job.nodes, 'node')}, has {has}",
                *named,
            ]
        ),
        next=(
            "wait for the nodes above, or free other nodes"
            if is_enough
            else "add nodes or free others: no repair under way brings enough back"
        ),
    )


def _overdue(job: WatchedJob, fleet: WatchedFleet, now: datetime) -> Iterator[Attention]:
    """Yield a running job whose newest verified checkpoint is too old."""
    if job.phase != JobPhase.RUNNING or job.saves is None:
        return
    since = overdue_since(job.saves, job.phase_since)
    if since is None or since > now:
        return
    saves = job.saves
    usual = format_duration(timedelta(seconds=round(saves.interval_s or 0)))
    newest = "none is good"
    if saves.saved_at is not None:
        age = format_duration(timedelta(seconds=round((now - saves.saved_at).total_seconds())))
        newest = f"the newest good one, {saves.name}, is {age} old"
    steps = steps_at_risk(saves, job.step)
    risk = f"; a failure now would repeat {counted(steps, 'step')}" if steps else ""
    yield Attention(
        topic=Topic.OVERDUE_CHECKPOINT,
        fleet=fleet.name,
        job=job.ref,
        since=since,
        what=f"{job.ref} usually saves a checkpoint every {usual}, but {newest}{risk}",
        next=f"inspect its saves with: holdfast checkpoint list {shlex.quote(job.checkpoint_dir)}",
    )


def _is_usable(node: WatchedNode) -> bool:
    """Whether a node can take ranks of one job: any, or the only one on it."""
    return (
        node.phase is Phase.SCHEDULABLE
        and not node.closed
        and not node.is_faulty
        and (node.request is None or is_requested_check(node.request))
        and len(node.jobs) <= 1
    )


def _returning(
    node: WatchedNode, fleet: WatchedFleet, usual: dict[str, timedelta], now: datetime
) -> str:
    """Return the state of a node out of service, with the remaining time if it is known.

    The estimate is the median time that repairs of the same remedy took in this fleet.
    """
    text = f"{node.name} is {node.phase}"
    left = _time_left(node, fleet, usual, now)
    if left is None:
        return f"{text} for {format_duration(now - node.phase_since)}"
    if left <= timedelta(0):
        return f"{text}, {format_duration(-left)} longer than usual"
    return f"{text}, about {format_duration(timedelta(seconds=round(left.total_seconds())))} left"


def _time_left(
    node: WatchedNode, fleet: WatchedFleet, usual: dict[str, timedelta], now: datetime
) -> timedelta | None:
    if node.remediation is None or node.remediation.remedy.value not in usual:
        return None
    incident_id = node.remediation.incident_id
    began_at = next((one.drained_at for one in fleet.incidents if one.id == incident_id), None)
    if began_at is None:
        return None
    return usual[node.remediation.remedy.value] - (now - began_at)


def _usual_repairs(incidents: Iterable[Incident]) -> dict[str, timedelta]:
    """Return ``remedy -> median time from the start of the repair to the release``."""
    took: dict[str, list[timedelta]] = {}
    for one in incidents:
        if one.drained_at is not None and one.released_at is not None:
            took.setdefault(one.remedy, []).append(one.released_at - one.drained_at)
    return {remedy: sorted(times)[len(times) // 2] for remedy, times in took.items()}


def _replacements(fleet: WatchedFleet, now: datetime) -> str:
    """Return the recent automatic replacements as the end of a message; empty without any."""
    times = [at for one in fleet.nodes for at in one.replaced_at]
    hour, day = (sum(now - at < window for at in times) for window in (HOUR, DAY))
    return f"; automatic replacements: {hour} in the last hour, {day} in 24h" if day else ""


def _of_node(
    node: WatchedNode, fleet: WatchedFleet, now: datetime, replacements: str
) -> Attention | None:
    """Return what a node needs; ``replacements`` as of ``_replacements``, once for all nodes."""
    found = _problem(node, fleet, now, replacements)
    if found is None:
        return None
    topic, since, what, advice = found
    return Attention(
        topic=topic,
        fleet=fleet.name,
        node=node.name,
        since=since,
        what=f"{node.name}: {what}",
        next=advice,
        level=EventLevel.INFO if topic is Topic.PLANNED_WAITS else EventLevel.ERROR,
    )


_Problem = tuple[Topic, datetime, str, str]


def _problem(
    node: WatchedNode, fleet: WatchedFleet, now: datetime, replacements: str
) -> _Problem | None:
    """Return topic, time, description and next step of the most urgent trouble of a node."""
    repair = node.remediation
    if node.silent_since is not None and (repair is None or repair.remedy is Remedy.NONE):
        silence = format_duration(now - node.silent_since)
        return (
            Topic.SILENT_AGENT,
            node.silent_since,
            f"its agent has been silent for {silence}; running jobs continue",
            "check the agent on the node: its service or pod, and its log",
        )
    if repair is None or repair.remedy is Remedy.NONE:
        return None
    if repair.replacements > 1:
        return (
            Topic.FAILED_REPAIR,
            repair.opened_at,
            f"{repair.replacements - 1} of {repair.replacements} replacement orders produced no "
            f"machine; {repair.reason} was found {format_duration(now - repair.opened_at)} ago",
            "check the capacity at the provider",
        )
    if repair.retry_at is not None and repair.ordered_at is None:
        return _refusal(node, repair, now)
    return _not_begun(node, repair, fleet, now, replacements)


def _refusal(node: WatchedNode, repair: Remediation, now: datetime) -> _Problem:
    assert repair.retry_at is not None  # noqa: S101 - the caller has checked it
    wait = max(timedelta(0), repair.retry_at - now)
    verb = "did not respond to" if repair.is_outcome_unknown else "has refused"
    return (
        Topic.PROVIDER_REFUSES,
        node.phase_since,
        f"the provider {verb} the order to {repair.remedy} it for "
        f"{format_duration(now - node.phase_since)}; retrying in "
        f"{format_duration(timedelta(seconds=round(wait.total_seconds())))}",
        "read the provider's error in the controller's log; check its quota and permissions",
    )


def _not_begun(
    node: WatchedNode, repair: Remediation, fleet: WatchedFleet, now: datetime, replacements: str
) -> _Problem | None:
    """Return why a repair that is due has not begun, as far as it needs a person."""
    if node.phase is not Phase.QUARANTINED or fleet.breaker.tripped_at is not None:
        return None
    waited = format_duration(now - node.phase_since)
    due = f"{repair.remedy} for {repair.reason}"
    is_work = is_planned(repair.reason)
    if node.pause_reason:
        return (
            Topic.PLANNED_WAITS if is_work else Topic.REPAIR_PAUSED,
            node.phase_since,
            f"{due} paused for {waited}: {node.pause_reason}",
            f"when the repair may start, run: holdfast nodes unhold {node.name}",
        )
    if repair.urgency is Urgency.DEFERRED and node.jobs:
        return None
    if is_work:
        return (
            Topic.PLANNED_WAITS,
            node.phase_since,
            f"{due} has not started for {waited}",
            "it starts when max_unavailable allows it; nothing is wrong with the node",
        )
    verb = Remedy.REPLACE if repair.remedy is Remedy.REPLACE else Remedy.REBOOT
    return (
        Topic.REPAIR_WAITS,
        node.phase_since,
        f"{due} has not started for {waited}{replacements}",
        f"it starts when max_unavailable and the replacement limit allow it; to order it now: "
        f"holdfast nodes {verb} {node.name}",
    )
