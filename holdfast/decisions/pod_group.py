"""Decisions about the pods of a job without an operator of its own: pure.

The job has one pod for each node rank. Holdfast creates missing pods, deletes all of them while the
job is suspended, and determines how the job ends. Restarts are decided by ``job_resume``, which
suspends and resumes the job.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast.kit.units import format_duration
from holdfast.model.jobs import JobPhase
from holdfast.model.names import PodPhase


class CleanPods(StrEnum):
    """Which pods are deleted when the job has ended; values of HyperPod's ``cleanPodPolicy``."""

    ALL = "All"
    ONLY_COMPLETE = "OnlyComplete"
    """All pods if the job succeeded; else only those that still run."""

    NONE = "None"
    """Only those that still run."""


class GroupState(StrEnum):
    """State of the pods as a whole."""

    STARTING = "starting"
    RUNNING = "running"
    """All pods run."""

    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


ENDED: Final = (GroupState.SUCCEEDED, GroupState.FAILED)

INVALID: Final = "InvalidSpec"
OVERDUE: Final = "DeadlineExceeded"
"""Reasons of failed jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPod:
    """Pod of a job."""

    uid: str
    rank: int
    phase: str
    is_terminating: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether no container of it will run any more."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Limits of a job. None: no limit."""

    active: timedelta | None = None
    """Maximum time from the first start to the end of the job."""

    startup: timedelta | None = None
    """Maximum time from a start to the moment when all pods run."""

    fault: timedelta | None = None
    """Maximum time for which a restart keeps the job suspended."""

    keep: timedelta | None = None
    """Time after its end for which the job is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """Pods of a job, and what the job requests."""

    ranks: int
    pods: tuple[GroupPod, ...] = ()
    limits: GroupLimits = GroupLimits()
    clean: CleanPods = CleanPods.ALL
    refusal: str = ""
    """Why the job cannot run at all; empty if it can."""

    is_suspended: bool = False
    is_restarting: bool = False
    """Whether a restart, and not a person, keeps it suspended."""

    first_started_at: datetime | None = None
    started_at: datetime | None = None
    """Time since which it is not suspended; None before its first start."""

    has_run: bool = False
    """Whether all pods have run since then."""

    suspended_at: datetime | None = None
    ending: GroupState | None = None
    """How it has ended; None if that is not recorded yet."""

    ended_at: datetime | None = None
    recorded: JobPhase | None = None
    """Final phase of the record of its attempts; None if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """Next action on the pods of the job."""

    state: GroupState
    reason: str = ""
    """Why it failed, in CamelCase; empty if it did not fail now."""

    why: str = ""
    create: tuple[int, ...] = ()
    """Ranks that need a pod."""

    delete: tuple[str, ...] = ()
    """UIDs of pods."""

    removes_job: bool = False


def plan_pods(group: PodGroup, now: datetime) -> GroupPlan:
    """Return what to do with the pods of a job now."""
    if group.ending is not None:
        return GroupPlan(
            state=group.ending,
            delete=_leftover(group, group.ending),
            removes_job=_is_past(group.ended_at, group.limits.keep, now),
        )
    if group.refusal:
        return _failed(group, INVALID, group.refusal)
    by_rank = {pod.rank: pod for pod in group.pods if pod.rank < group.ranks}
    has_succeeded = _all_in(by_rank, group, PodPhase.SUCCEEDED)
    if has_succeeded or group.recorded is JobPhase.SUCCEEDED:
        state = GroupState.SUCCEEDED
        return GroupPlan(state=state, delete=_leftover(group, state))
    if why := _overdue(group, now):
        return _failed(group, OVERDUE, why)
    if group.is_suspended:
        return GroupPlan(state=GroupState.SUSPENDED, delete=_uids(group.pods))
    runs = _all_in(by_rank, group, PodPhase.RUNNING, PodPhase.SUCCEEDED)
    return GroupPlan(
        state=GroupState.RUNNING if runs else GroupState.STARTING,
        create=tuple(rank for rank in range(group.ranks) if rank not in by_rank),
        delete=_uids(pod for pod in group.pods if pod.rank >= group.ranks),
    )


def _all_in(by_rank: Mapping[int, GroupPod], group: PodGroup, *phases: PodPhase) -> bool:
    ready = sum(
        pod.phase in phases and (pod.has_ended or not pod.is_terminating)
        for pod in by_rank.values()
    )
    return ready == group.ranks


def _overdue(group: PodGroup, now: datetime) -> str:
    """Return which limit the job has exceeded; empty if it has not."""
    limits = group.limits
    if _is_past(group.first_started_at, limits.active, now):
        return _exceeded("activeDeadlineSeconds", limits.active, "did not end")
    if group.is_suspended:
        is_stuck = group.is_restarting and _is_past(group.suspended_at, limits.fault, now)
        return _exceeded("faultDeadlineSeconds", limits.fault, "was not restarted") * is_stuck
    is_late = not group.has_run and _is_past(group.started_at, limits.startup, now)
    return _exceeded("startupDeadlineSeconds", limits.startup, "did not start all pods") * is_late


def _exceeded(key: str, limit: timedelta | None, what: str) -> str:
    return f"the job {what} within {format_duration(limit)} ({key})" if limit is not None else ""


def _is_past(since: datetime | None, limit: timedelta | None, now: datetime) -> bool:
    return since is not None and limit is not None and now >= since + limit


def _failed(group: PodGroup, reason: str, why: str) -> GroupPlan:
    state = GroupState.FAILED
    return GroupPlan(state=state, reason=reason, why=why, delete=_leftover(group, state))


def _leftover(group: PodGroup, ending: GroupState) -> tuple[str, ...]:
    """Return the pods to delete after the end; pods that still run always hold devices."""
    cleans = group.clean is CleanPods.ALL or (
        group.clean is CleanPods.ONLY_COMPLETE and ending is GroupState.SUCCEEDED
    )
    return _uids(pod for pod in group.pods if cleans or not pod.has_ended)


def _uids(pods: Iterable[GroupPod]) -> tuple[str, ...]:
    return tuple(pod.uid for pod in pods if not pod.is_terminating)
