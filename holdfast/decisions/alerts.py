"""State of the alerts that follow from stored state: pending or firing, as in Prometheus. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from holdfast.decisions import alert_rules as rules
from holdfast.decisions.alert_rules import AlertRule
from holdfast.decisions.save_age import overdue_since
from holdfast.decisions.watched_fleets import WatchedFleet, WatchedJob, WatchedNode
from holdfast.model.health import Remedy
from holdfast.model.jobs import FailureKind, JobPhase
from holdfast.model.nodes import Phase

_PENDING_REPAIR: Final = frozenset(Phase) - {Phase.SCHEDULABLE, Phase.JOINING, Phase.CHECKING}
"""Phases in which the health label of a node requests its repair."""


class AlertState(StrEnum):
    """State of an alert whose condition holds, as in Prometheus."""

    FIRING = "firing"
    PENDING = "pending"
    """Its condition does not hold for long enough yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert of one fleet."""

    rule: AlertRule
    fleet: str
    state: AlertState
    since: datetime
    """Time since which the condition holds, of the first subject."""

    nodes: tuple[str, ...] = ()
    """Nodes that it is about, those for which it holds longest first."""

    jobs: tuple[str, ...] = ()
    """References of the jobs that it is about, in the same order."""


@dataclass(frozen=True, slots=True, order=True)
class _Subject:
    """Subject for which the condition of a rule holds."""

    since: datetime
    node: str = ""
    job: str = ""


_Condition = Callable[[WatchedFleet, datetime], Iterable[_Subject]]


def current_alerts(fleets: Iterable[WatchedFleet], now: datetime) -> list[Alert]:
    """Return the alerts whose condition holds, in the order of the rules, firing ones first."""
    found = [
        alert
        for rule, condition in _CONDITIONS.items()
        for fleet in fleets
        if (alert := _alert(rule, fleet, sorted(condition(fleet, now)), now)) is not None
    ]
    return sorted(found, key=lambda one: one.state is not AlertState.FIRING)


def is_evaluated(rule: AlertRule) -> bool:
    """Whether a rule follows from stored state; others need the metrics of agent or controller."""
    return rule in _CONDITIONS


def _alert(
    rule: AlertRule, fleet: WatchedFleet, subjects: list[_Subject], now: datetime
) -> Alert | None:
    if not subjects:
        return None
    firing = [one for one in subjects if now - one.since >= rule.lasts]
    shown = firing or subjects
    return Alert(
        rule=rule,
        fleet=fleet.name,
        state=AlertState.FIRING if firing else AlertState.PENDING,
        since=shown[0].since,
        nodes=tuple(one.node for one in shown if one.node),
        jobs=tuple(one.job for one in shown if one.job),
    )


def _breaker(fleet: WatchedFleet, _now: datetime) -> Iterator[_Subject]:
    if fleet.is_active and fleet.breaker.tripped_at is not None:
        yield _Subject(fleet.breaker.tripped_at)


def _nodes(since: Callable[[WatchedNode], datetime | None]) -> _Condition:
    """Return the condition of nodes for which ``since`` returns a time."""

    def condition(fleet: WatchedFleet, _now: datetime) -> Iterator[_Subject]:
        for node in fleet.nodes if fleet.is_active else ():
            at = since(node)
            if at is not None:
                yield _Subject(at, node=node.name)

    return condition


def _pending_repair(node: WatchedNode) -> datetime | None:
    repair = node.remediation
    if repair is None or node.phase not in _PENDING_REPAIR:
        return None
    return repair.opened_at if repair.remedy in (Remedy.REBOOT, Remedy.REPLACE) else None


def _many_out(fleet: WatchedFleet, _now: datetime) -> Iterator[_Subject]:
    """Yield the time since when so many nodes have been out of service without a break."""
    if not fleet.is_active:
        return
    away = sorted(
        one.remediation.opened_at if one.remediation is not None else one.phase_since
        for one in fleet.nodes
        if one.phase is not Phase.SCHEDULABLE
    )
    if len(away) > rules.SHARE_OUT * len(fleet.nodes):
        yield _Subject(away[int(rules.SHARE_OUT * len(fleet.nodes))])


def _jobs(since: Callable[[WatchedJob, datetime], datetime | None]) -> _Condition:
    """Return the condition of jobs for which ``since`` returns a time until now."""

    def condition(fleet: WatchedFleet, now: datetime) -> Iterator[_Subject]:
        for job in fleet.jobs:
            at = since(job, now)
            if at is not None and at <= now:
                yield _Subject(at, job=job.ref)

    return condition


def _failed(job: WatchedJob, now: datetime) -> datetime | None:
    is_recent = now - job.phase_since < rules.FAILED_WITHIN
    return job.phase_since if job.phase == JobPhase.FAILED and is_recent else None


def _waiting(job: WatchedJob, _now: datetime) -> datetime | None:
    return job.phase_since + rules.JOB_WAITS if job.phase == JobPhase.WAITING else None


def _stopping(job: WatchedJob, _now: datetime) -> datetime | None:
    return job.phase_since + rules.JOB_STOPS if job.phase == JobPhase.STOPPING else None


def _overdue(job: WatchedJob, _now: datetime) -> datetime | None:
    if job.phase != JobPhase.RUNNING or job.saves is None:
        return None
    return overdue_since(job.saves, job.phase_since)


def _fail_often(fleet: WatchedFleet, now: datetime) -> Iterator[_Subject]:
    """Yield, for each kind, when the last failure that the rule needs happened, and its job."""
    for kind in (FailureKind.HARDWARE, FailureKind.APPLICATION):
        recent = sorted(
            (one.at, job.ref)
            for job in fleet.jobs
            for one in job.failures
            if one.kind == kind and now - one.at < rules.FAILURES_WITHIN
        )
        if len(recent) >= rules.FAILURES:
            at, job_ref = recent[rules.FAILURES - 1]
            yield _Subject(at, job=job_ref)


_CONDITIONS: Final[Mapping[AlertRule, _Condition]] = {
    rules.BREAKER_OPEN: _breaker,
    rules.REPAIR_IS_SLOW: _nodes(_pending_repair),
    rules.MANY_NODES_OUT: _many_out,
    rules.AGENT_DOWN: _nodes(lambda node: node.silent_since),
    rules.NODE_FAULTY: _nodes(lambda node: node.fault_since),
    rules.JOB_FAILED: _jobs(_failed),
    rules.JOB_WAITING: _jobs(_waiting),
    rules.JOB_NOT_STOPPING: _jobs(_stopping),
    rules.JOBS_FAIL_OFTEN: _fail_often,
    rules.CHECKPOINT_OVERDUE: _jobs(_overdue),
}
"""Condition by rule."""
