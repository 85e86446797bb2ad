"""Status of a ``HyperPodPyTorchJob`` as its operator writes it: pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import format_time, parse_time
from holdfast.adapters.kubernetes.jobs.conditions import (
    FAILED,
    SUSPENDED,
    SUSPENDED_PHASES,
    changed_at,
    condition_of,
    conditions_of,
    ending_of,
)
from holdfast.adapters.kubernetes.jobs.hyperpod_job import TIMES, HyperPodJob
from holdfast.adapters.kubernetes.jobs.hyperpod_pods import PORT, master_address
from holdfast.adapters.kubernetes.jobs.objects import PodState
from holdfast.decisions.pod_group import (
    CleanPods,
    GroupLimits,
    GroupPlan,
    GroupPod,
    GroupState,
    PodGroup,
)
from holdfast.model.jobs import Failure, JobPhase, JobRecord
from holdfast.model.names import PodPhase

SUCCEEDED: Final = PodPhase.SUCCEEDED.value
RUNNING: Final = PodPhase.RUNNING.value
CREATED: Final = "Created"
PODS_RUNNING: Final = "PodsRunning"
RESTARTING: Final = "Restarting"

_ORDER: Final = (CREATED, PODS_RUNNING, RUNNING, SUSPENDED, RESTARTING, SUCCEEDED, FAILED)
"""Order of the conditions: ``hyp list`` shows the last one that is True."""

_CLEANING: Final[Mapping[str, CleanPods]] = {one.value: one for one in CleanPods}
_REASON: Final = "HoldfastOperator"
_MESSAGES: Final = {
    CREATED: "Holdfast operates the job",
    PODS_RUNNING: "all pods run",
    RUNNING: "all pods run",
    SUSPENDED: "the job is suspended: it has no pods",
    RESTARTING: "all pods are created again when nodes are available",
    SUCCEEDED: "all pods succeeded",
}


def pod_group(job: HyperPodJob, pods: Sequence[PodState], record: JobRecord | None) -> PodGroup:
    """Return what the decision core reads of a job."""
    policy, status = job.run_policy, job.shown
    first = parse_time(status.get("startTime"))
    started = job.started_at if not job.is_stop_seen else None
    ran_until = changed_at(job.whole, PODS_RUNNING)
    runs = condition_of(job.whole, PODS_RUNNING) is not None
    ended = {JobPhase.SUCCEEDED: GroupState.SUCCEEDED, JobPhase.FAILED: GroupState.FAILED}
    ending = ending_of(job.whole, SUCCEEDED)
    bad = job.rejection
    refused = f"{bad.key} is {bad.value}: expected {bad.expected}" if bad is not None else ""
    return PodGroup(
        ranks=job.ranks,
        pods=tuple(
            GroupPod(uid=p.uid, rank=p.member.rank, phase=p.phase, is_terminating=p.is_terminating)
            for p in pods
        ),
        limits=GroupLimits(
            active=_seconds(policy.get("activeDeadlineSeconds")),
            startup=_seconds(policy.get("startupDeadlineSeconds")),
            fault=_seconds(policy.get("faultDeadlineSeconds")),
            keep=_seconds(policy.get("ttlSecondsAfterFinished")),
        ),
        clean=_CLEANING.get(policy.get("cleanPodPolicy") or "", CleanPods.ALL),
        refusal=refused,
        is_suspended=job.is_suspended,
        is_restarting=_is_restarting(job, record),
        first_started_at=first,
        started_at=started,
        has_run=runs or (ran_until is not None and started is not None and ran_until > started),
        suspended_at=changed_at(job.whole, SUSPENDED) if job.is_stop_seen else None,
        ending=ended[ending.outcome] if ending is not None else None,
        ended_at=parse_time(status.get("completionTime")),
        recorded=record.phase if record is not None and record.phase.is_final else None,
    )


def status_of(
    job: HyperPodJob,
    plan: GroupPlan,
    pods: Sequence[PodState],
    record: JobRecord | None,
    now: datetime,
) -> Json:
    """Return the fields of the status that Holdfast writes, as they are to be now."""
    before = job.shown
    is_suspended = plan.state is GroupState.SUSPENDED
    is_true = {
        CREATED: True,
        PODS_RUNNING: plan.state is GroupState.RUNNING,
        RUNNING: plan.state is GroupState.RUNNING,
        SUSPENDED: is_suspended,
        RESTARTING: is_suspended and _is_restarting(job, record),
        SUCCEEDED: plan.state is GroupState.SUCCEEDED,
        FAILED: plan.state is GroupState.FAILED,
    }
    status: Json = {
        "conditions": list(_conditions(job, plan, is_true, now)),
        "startTime": before.get("startTime") or format_time(now),
        **_restarts(job, record, now, is_new=is_true[RESTARTING] and not _is(job, RESTARTING)),
    }
    if job.ranks > 1 and job.rejection is None:
        status |= {"masterAddr": master_address(job), "masterPort": str(PORT)}
    if is_true[SUCCEEDED] or is_true[FAILED]:
        status["completionTime"] = before.get("completionTime") or format_time(now)
    faulty = _faulty(job, pods, record)
    return status if faulty is None else {**status, "latestFaultyPodInstanceList": faulty}


def _conditions(
    job: HyperPodJob, plan: GroupPlan, is_true: Mapping[str, bool], now: datetime
) -> Iterator[Json]:
    """Yield conditions of others, then our own: those that are true, or were."""
    known = {one.get("type"): one for one in conditions_of(job.whole)}
    yield from (one for kind, one in known.items() if kind not in is_true)
    for kind in _ORDER:
        before, status = known.get(kind), str(is_true[kind])
        if before is not None and before.get("status") == status:
            yield before
        elif before is not None or is_true[kind]:
            message = plan.why if kind == FAILED else _MESSAGES[kind]
            yield {
                "type": kind,
                "status": status,
                "reason": plan.reason or _REASON,
                "message": message if is_true[kind] else "",
                **dict.fromkeys(TIMES, format_time(now)),
            }


def _restarts(job: HyperPodJob, record: JobRecord | None, now: datetime, *, is_new: bool) -> Json:
    """Return the restart counts; ``is_new``: a restart of the whole job begins now."""
    before = job.shown.get("restartStatus") or {}
    full = before.get("fullJobRestartCount", 0) + is_new
    attempts = record.attempt - 1 if record is not None else 0
    total = max(job.shown.get("restartCount") or 0, attempts)
    first = parse_time(job.shown.get("startTime")) or now
    period = _seconds((job.run_policy.get("restartPolicy") or {}).get("evalPeriodSeconds"))
    return {
        "restartCount": total,
        "restartStatus": {
            "currentEvalPeriod": (now - first) // period if period is not None else 0,
            "fullJobRestartCount": full,
            "restartCount": max(0, total - full),
        },
    }


def _faulty(job: HyperPodJob, pods: Sequence[PodState], record: JobRecord | None) -> Json | None:
    """Return the pods of the latest failure, by the nodes that the record names.

    A pod of the next attempt may run on that node since the second of the failure, so that pods
    only count while the record names no nodes.
    """
    before = job.shown.get("latestFaultyPodInstanceList")
    failure = record.failure if record is not None else None
    if record is None or failure is None or not failure.node:
        return before
    is_kept = any(one.node == failure.node for one in record.exchanged)
    there = [pod for pod in pods if pod.node == failure.node and pod.created_at <= failure.at]
    ranks = _ranks_of(job, record, failure) or [pod.member.rank for pod in there]
    found: Json = {
        "restartType": "PLR" if is_kept else "JLR",
        "faultyInstanceIdList": [failure.node],
        "faultyPodList": [job.pod_name(rank) for rank in ranks],
        "faultyRankList": [str(rank) for rank in ranks],
    }
    instances = (before or {}).get("faultyInstanceIdList")
    if before is not None and not ranks and instances == found["faultyInstanceIdList"]:
        return {**before, "restartType": found["restartType"]}
    return found


def _ranks_of(job: HyperPodJob, record: JobRecord, failure: Failure) -> list[int]:
    """Return the node ranks on the node of a failure; none if several pods shared nodes."""
    ended = [one.placement for one in record.attempts if one.failure == failure]
    placement = ended[-1] if ended else record.placement
    if len(placement) != job.ranks:
        return []
    return [rank for rank, node in enumerate(placement) if node == failure.node]


def _is_restarting(job: HyperPodJob, record: JobRecord | None) -> bool:
    return job.is_suspended and record is not None and record.phase in SUSPENDED_PHASES


def _is(job: HyperPodJob, kind: str) -> bool:
    return condition_of(job.whole, kind) is not None


def _seconds(value: Any) -> timedelta | None:
    """Return a duration; None without a limit, which 0 and -1 also mean."""
    return timedelta(seconds=value) if isinstance(value, int) and value > 0 else None
