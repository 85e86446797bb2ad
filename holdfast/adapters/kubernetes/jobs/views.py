"""Conversion of a job object and its pods to the view of the decision core: pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.kubernetes.jobs.conditions import SUSPENDED_PHASES
from holdfast.adapters.kubernetes.jobs.containers import Exit
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodState
from holdfast.adapters.kubernetes.jobs.requests import JobRequests
from holdfast.model.job_views import JobView, RankView
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec, Placing
from holdfast.model.names import PodPhase

LATE: Final = timedelta(minutes=1)
"""Maximum age of a container failure when the job is first read; the containers of an older job
have restarted since."""

_UNKNOWN_EXIT: Final = 1
"""Stands for the exit code of a pod whose exit code is unknown."""


def record_of(
    state: JobState, requests: JobRequests, seen_at: datetime, *, is_active: bool = True
) -> JobRecord | None:
    """Return the current record of a job; None if the job is not managed at the moment.

    A job without a record, or that was restarted externally, is in an attempt that began
    externally. A job that was suspended externally is not managed.

    Args:
        state: state of the job.
        requests: parsed annotations of the job.
        seen_at: time at which this process first read the job.
        is_active: whether Kueue may admit it, if it is in a queue.

    """
    record = requests.record
    if not requests.auto_resume or requests.is_damaged or state.is_leaving:
        return None
    if record is None:
        return _unrecorded(state, seen_at)
    if record.phase.is_final:
        return None
    is_queued = state.queue is not None
    awaits_restart = not is_active if is_queued else state.is_suspended
    if state.ending is not None or (record.phase in SUSPENDED_PHASES and awaits_restart):
        return record
    if is_queued and record.phase in (JobPhase.STOPPING, JobPhase.STARTING):
        return record  # the request to Kueue is written after the record
    if state.is_suspended or state.is_restarting:
        return None
    if record.phase is JobPhase.RUNNING and state.is_stop_seen:
        return None  # its operator has not observed yet that it may run again
    known_since = max(record.phase_since, record.started_at or record.phase_since)
    is_new_run = state.started_at is not None and state.started_at > known_since
    if record.phase in SUSPENDED_PHASES or (record.phase is JobPhase.RUNNING and is_new_run):
        return _begun_by_others(state, record, seen_at)
    return record


def _unrecorded(state: JobState, seen_at: datetime) -> JobRecord | None:
    """Return a record for a job without one, which may be removed while Holdfast suspends it."""
    if state.ending is not None:
        return None
    waiting = JobRecord(phase=JobPhase.WAITING, phase_since=seen_at)
    if not state.is_suspended:
        return _begun_by_others(state, waiting, seen_at)
    return waiting if state.is_orphaned else None


def _begun_by_others(state: JobState, before: JobRecord, seen_at: datetime) -> JobRecord:
    began = max(state.started_at or state.created_at, seen_at - LATE)
    return replace(
        before,
        phase=JobPhase.STARTING,
        phase_since=began,
        attempt=before.attempt + 1,
        placement=(),
        started_at=began,
        running_at=None,
        start_after=None,
        kills=0,
        reason="",
    )


def job_view(
    state: JobState,
    requests: JobRequests,
    record: JobRecord,
    pods: Sequence[PodState],
    *,
    lost: Mapping[int, PodState],
    counts: Mapping[str, bool],
    fenced: Iterable[PodState] = (),
    capacity: Mapping[str, int] | None = None,
) -> JobView:
    """Return the view of a job for the decision core.

    Args:
        state: state of the job.
        requests: parsed annotations of the job.
        record: see ``record_of``.
        pods: all current pods of the job.
        lost: last states of pods of this attempt that no longer exist, by rank.
        counts: for each node of ``pods``, of ``lost`` and of the record whether it is managed or no
            longer exists; the health of other nodes is unknown.
        fenced: pods that cannot run any more.
        capacity: see ``JobView.capacity``.

    """
    spec = JobSpec(
        name=state.key,
        nodes=state.ranks - (len(state.completed) if record.phase in SUSPENDED_PHASES else 0),
        max_retries=requests.max_retries,
        max_app_retries=requests.max_app_retries,
        max_all_retries=state.max_all_retries,
        grace=_grace(state),
        fault_grace=requests.fault_grace,
        keeps_ranks=requests.keeps_pods,
        placing=Placing.SCHEDULER,
    )
    if record.phase in SUSPENDED_PHASES:
        return JobView(
            spec=spec,
            record=record,
            ranks=_stopped(pods, lost, {pod.uid for pod in fenced}),
            ending=state.ending,
            capacity=capacity,
            is_stop_seen=state.is_stop_seen and state.is_suspended,
        )
    began = (record.started_at or record.phase_since).replace(microsecond=0)
    shown = _started(pods, None if requests.keeps_pods else began)
    ranks_now = {pod.member.rank: _rank(pod, began) for pod in shown}
    ranks_now |= {rank: _lost(pod) for rank, pod in lost.items()}
    for rank in state.completed:
        ranks_now[rank] = _done(rank, ranks_now[rank].node if rank in ranks_now else "")
    ordered = sorted((*pods, *lost.values()), key=lambda pod: pod.member.rank)
    where = _placement(record, ordered, spec.nodes)
    done = {rank for rank, view in ranks_now.items() if view.exit_code == 0}
    left = {pod.node for pod in ordered} - {p.node for p in ordered if p.member.rank not in done}
    return JobView(
        spec=spec,
        record=replace(
            record, placement=tuple(node for node in where if counts[node] and node not in left)
        ),
        ranks=tuple(ranks_now[rank] for rank in sorted(ranks_now)),
        ending=state.ending,
    )


def _stopped(
    pods: Iterable[PodState], lost: Mapping[int, PodState], off: Collection[str]
) -> tuple[RankView, ...]:
    """Return the ranks of a stopped attempt: those whose pods remain, and how the others ended.

    Args:
        pods: all current pods of the job.
        lost: last states of pods that no longer exist, by rank.
        off: uids of the pods that cannot run any more.

    """
    ranks = [RankView(rank=p.member.rank, node=p.node, is_fenced=p.uid in off) for p in pods]
    remaining = {one.rank for one in ranks}
    ended = (pod for rank, pod in lost.items() if pod.has_ended and rank not in remaining)
    ranks += [replace(_lost(pod), is_evicted=False) for pod in ended]
    return tuple(sorted(ranks, key=lambda one: one.rank))


def _placement(record: JobRecord, pods: Iterable[PodState], ranks: int) -> Iterable[str]:
    """Return the nodes of an attempt: in rank order, where each rank has a node of its own.

    The record may have them in the order in which they were assigned. That of a rank without a pod
    is known from a record with as many nodes as ranks.
    """
    nodes = dict(enumerate(record.placement)) if len(record.placement) == ranks else {}
    nodes |= {pod.member.rank: pod.node for pod in pods if pod.node}
    return dict.fromkeys((*(nodes[rank] for rank in sorted(nodes)), *record.placement))


def is_stop_overdue(state: JobState, record: JobRecord | None, now: datetime) -> bool:
    """Whether the operator of a stopping job had its pods' grace period to delete all of them."""
    if record is None:
        return True
    stopped_at = record.failure.at if record.failure is not None else record.phase_since
    return now >= stopped_at + _grace(state)


def _grace(state: JobState) -> timedelta:
    """Return the longest grace period of the pods of a job."""
    return max((group.grace for group in state.groups), default=JobSpec(name="", nodes=0).grace)


def exchanged_pods(record: JobRecord, pods: Iterable[PodState]) -> list[PodState]:
    """Return the pods that remain on nodes that were exchanged."""
    since = {one.node: one.at for one in record.exchanged}
    return [pod for pod in pods if pod.node in since and pod.created_at < since[pod.node]]


def nodes_of(
    record: JobRecord, pods: Iterable[PodState], lost: Mapping[int, PodState]
) -> frozenset[str]:
    """Return all nodes for which ``job_view`` needs an entry in ``counts``."""
    return frozenset((*record.placement, *(p.node for p in (*pods, *lost.values()) if p.node)))


def _has_started(pod: PodState) -> bool:
    return pod.phase != PodPhase.PENDING and bool(pod.node)


def _started(pods: Iterable[PodState], began: datetime | None) -> list[PodState]:
    """Return the pods that have started; of each rank the last one counts.

    Operators start another pod in place of a failed one while no leader observes the job; it does
    not join the process group of the other ranks. So those that failed in the attempt come last.

    Args:
        pods: all pods of the attempt.
        began: begin of the attempt; None if other pods may take the place of failed ones.

    """
    return sorted(
        filter(_has_started, pods),
        key=lambda pod: (
            began is not None and pod.phase == PodPhase.FAILED and pod.created_at >= began
        ),
    )


def _rank(pod: PodState, began: datetime) -> RankView:
    """Return the view of an existing pod; exits before the attempt began do not belong to it."""
    exit_ = pod.exit
    if pod.phase == PodPhase.SUCCEEDED:
        return _done(pod.member.rank, pod.node)
    is_of_attempt = exit_ is not None and (
        exit_.at is None or max(exit_.at, pod.created_at) >= began  # clocks of nodes may be behind
    )
    if exit_ is not None and (pod.has_ended or is_of_attempt):
        return _ended(pod, exit_)
    if pod.evicted:
        return _evicted(pod)
    return RankView(rank=pod.member.rank, node=pod.node)


def _done(rank: int, node: str) -> RankView:
    return RankView(rank=rank, node=node, exit_code=0)


def _lost(pod: PodState) -> RankView:
    if pod.phase == PodPhase.SUCCEEDED:
        return _done(pod.member.rank, pod.node)
    return _ended(pod, pod.exit) if pod.has_ended and pod.exit is not None else _evicted(pod)


def _ended(pod: PodState, reported: Exit) -> RankView:
    return RankView(
        rank=pod.member.rank,
        node=pod.node,
        exit_code=reported.code or _UNKNOWN_EXIT,
        ended_at=reported.at,
        reason=reported.reason,
        is_evicted=bool(pod.evicted),
    )


def _evicted(pod: PodState) -> RankView:
    return RankView(
        rank=pod.member.rank,
        node=pod.node,
        exit_code=_UNKNOWN_EXIT,
        reason=pod.evicted or "Deleted",
        is_evicted=True,
    )
