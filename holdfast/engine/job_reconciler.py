"""Job loop: observe, decide, act, record."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.decisions.incident_updates import resumed, touched
from holdfast.decisions.job_lifecycle import after_job, launched
from holdfast.decisions.job_resume import ResumePolicy, decide_job
from holdfast.decisions.placement import reserved
from holdfast.decisions.straggler_nodes import straggler_nodes
from holdfast.decisions.suspect_nodes import SuspectNode, suspect_nodes
from holdfast.engine.check_requests import CheckRequests
from holdfast.engine.checkpoint_incidents import CheckpointIncidents
from holdfast.engine.job_events import killed_event, started_event, verdict_event
from holdfast.engine.job_notices import JobNotices
from holdfast.engine.node_reconciler import RESYNC
from holdfast.engine.record_dates import RecordDates
from holdfast.engine.repeats import AFTER_ERROR, RepeatLimiter
from holdfast.model.actions import (
    ConfirmStart,
    ExchangeNode,
    Finish,
    JobAction,
    KillAttempt,
    Relaunch,
    Retry,
    StartAttempt,
    StopAttempt,
    Wait,
)
from holdfast.model.errors import BackendError
from holdfast.model.events import (
    AttemptStopped,
    JobWaits,
    NodeSuspected,
    StragglerSuspected,
)
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.job_views import JobView
from holdfast.model.jobs import (
    AttemptRecord,
    Failure,
    FailureKind,
    JobPhase,
    JobRecord,
    Placing,
)
from holdfast.model.nodes import NodeView
from holdfast.ports.clock import Clock
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.events import EventSink
from holdfast.ports.incidents import IncidentStore
from holdfast.ports.jobs import JobBackend
from holdfast.ports.leadership import Alone, Leadership

_LONGEST_REST: Final = timedelta(minutes=1)
"""Maximum pause after a slow call, also if the clock jumped meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPorts:
    """Ports of the job loop."""

    jobs: JobBackend
    cluster: ClusterBackend
    incidents: IncidentStore
    events: EventSink
    clock: Clock
    leadership: Leadership = field(default_factory=Alone)
    stragglers: Callable[[], Iterable[JobView]] = tuple
    """Returns jobs that others restart, each with its straggler, after ``jobs`` was read."""


class JobReconciler:
    """Keeps each job running on healthy nodes. Keeps no state that a restart would miss."""

    def __init__(self, ports: JobPorts, policy: ResumePolicy) -> None:
        self._ports = ports
        self._policy = policy
        self._repeats = RepeatLimiter(ports.events)
        self._reported: dict[str, str] = {}  # reports each reason to wait once
        self._notices = JobNotices(ports.events)
        self._stopped: dict[str, int] = {}  # sends each attempt SIGTERM once
        self._checks = CheckRequests(ports.cluster, ports.leadership, ports.events)
        self._failed_jobs: set[str] = set()  # jobs whose calls fail delay no others
        self._rest_until = datetime.min.replace(tzinfo=UTC)
        self._ended: list[tuple[str, AttemptRecord]] = []  # of jobs no longer listed
        self._dates = RecordDates(ports.jobs.put, ports.clock, ports.leadership, self._repeats)
        self._moves = CheckpointIncidents(
            ports.jobs, ports.incidents, ports.leadership, policy.nodes
        )

    def step(self) -> datetime:
        """Run one round; it ends early when another controller becomes the leader.

        Returns:
            Time of the next round, unless something happens before.

        Raises:
            StorageFull: nothing can be recorded, so nothing may be done.
            StateDamaged: nothing can be recorded until a restart has restored the state.

        """
        now = self._ports.clock.now()
        try:
            jobs = self._ports.jobs.jobs()
            self._record_moves(now)
            self._forget_all_but({job.spec.name for job in jobs})
            slow = tuple(self._ports.stragglers())
            if not jobs and not slow:
                return now + RESYNC
            nodes = _with_jobs((view := self._ports.cluster.snapshot()).nodes, jobs)
        except BackendError as error:
            return self._repeats.call_failed("reading the jobs", error, now)
        now = min(now, view.read_at or now, self._ports.clock.now())  # it may be set meanwhile
        if self._suspect(jobs, slow, nodes, now):
            return now  # before a job starts on such a node
        records = {job.spec.name: job.record for job in jobs}
        if (corrected_at := self._dates.correct(records, now)) is None:
            return now
        wake_times = [now + RESYNC, corrected_at]
        has_scheduled = False
        for job in self._failed_last(jobs, now):
            choice = decide_job(job, nodes, self._policy, now)
            if isinstance(choice, StartAttempt):
                is_scheduled = job.spec.placing is Placing.SCHEDULER
                if is_scheduled and has_scheduled:
                    wake_times.append(now)  # it sees the room of the previous job
                    continue
                has_scheduled |= is_scheduled
            if isinstance(choice, StartAttempt | ExchangeNode):
                nodes = reserved(nodes, job.spec.name, choice.placement)
            if not self._ports.leadership.is_held():
                return now + AFTER_ERROR
            wake_times.append(self._act(choice, job, nodes, now))
        if self._failed_jobs and self._rest_until > now:
            wake_times.append(self._rest_until)
        return min(wake_times)

    def _record_moves(self, now: datetime) -> None:
        """Record the checkpoints that were moved; an error delays no job."""
        try:
            self._moves.record(now)
        except BackendError as error:
            self._repeats.call_failed("recording moved checkpoints", error, now)

    def _forget_all_but(self, names: set[str]) -> None:
        """Drop the reports on deleted jobs: they are new for the next job of the same name."""
        self._reported = {job: why for job, why in self._reported.items() if job in names}
        self._stopped = {job: attempt for job, attempt in self._stopped.items() if job in names}
        self._notices.forget_all_but(names)
        self._failed_jobs &= names

    def _failed_last(self, jobs: Iterable[JobView], now: datetime) -> Iterator[JobView]:
        """Yield jobs with a failed call last, and not before the other jobs had their time."""
        failed = frozenset(self._failed_jobs)
        yield from (job for job in jobs if job.spec.name not in failed)
        latest = self._ports.clock.now() + _LONGEST_REST
        if not now < self._rest_until <= latest:
            yield from (job for job in jobs if job.spec.name in failed)

    def _suspect(
        self,
        jobs: Sequence[JobView],
        others: Sequence[JobView],
        nodes: Mapping[str, NodeView],
        now: datetime,
    ) -> bool:
        """Request checks of nodes on which jobs fail or are slow; return whether any was."""
        since = now - self._policy.job.suspect_window
        self._ended = [(job, one) for job, one in self._ended if one.stopped_at > since]
        seen = ((job.spec.name, one) for job in jobs for one in job.record.attempts)
        failed = suspect_nodes((*self._ended, *seen), nodes, self._policy, now)
        requested = {one.node: replace(nodes[one.node], request=one.request) for one in failed}
        slow = straggler_nodes((*jobs, *others), {**nodes, **requested}, self._policy, now)
        return self._checks.request(
            (*failed, *slow),
            _suspected,
            lambda what, error: self._repeats.call_failed(what, error, now),
        )

    def _act(
        self, action: JobAction | Wait, job: JobView, nodes: Mapping[str, NodeView], now: datetime
    ) -> datetime:
        name, began = job.spec.name, self._ports.clock.now()
        try:
            match action:
                case Wait():
                    return self._wait(action, job, now)
                case StartAttempt() if job.spec.placing is Placing.SCHEDULER:
                    self._ports.jobs.put(name, after_job(job, action, now))
                    self._ports.jobs.launch(name)
                case StartAttempt() | Relaunch():
                    self._launch(action, job, nodes, now)
                case ConfirmStart():
                    self._report_started(job, nodes, after_job(job, action, now))
                case StopAttempt():
                    self._stop(action, job, now)
                case KillAttempt():
                    self._kill(action, job, now)
                case Retry() | Finish():
                    self._conclude(action, job, nodes, now)
                case ExchangeNode():
                    self._conclude(action, job, nodes, now)
                    self._ports.jobs.launch(name)
        except BackendError as error:
            ended = self._ports.clock.now()
            self._failed_jobs.add(name)
            if ended - began >= AFTER_ERROR:
                self._rest_until = ended + min(ended - began, _LONGEST_REST)
            return self._repeats.call_failed(f"{type(action).__name__} of {name}", error, now)
        self._failed_jobs.discard(name)
        return now

    def _wait(self, wait: Wait, job: JobView, now: datetime) -> datetime:
        if job.record.phase is JobPhase.STOPPING and not job.record.kills:
            self._terminate(job.spec.name, job.record.attempt)
        if job.record.phase is JobPhase.STARTING:
            self._ports.jobs.launch(job.spec.name)
        if wait.why and self._reported.get(job.spec.name) != wait.why:
            self._reported[job.spec.name] = wait.why
            self._ports.events.emit(JobWaits(job=job.spec.name, why=wait.why))
        self._notices.report(job)
        return min(now + RESYNC, wait.until) if wait.until is not None else now + RESYNC

    def _launch(
        self,
        action: StartAttempt | Relaunch,
        job: JobView,
        nodes: Mapping[str, NodeView],
        now: datetime,
    ) -> None:
        name = job.spec.name
        record = after_job(job, action, now)
        if isinstance(action, StartAttempt):
            self._ports.jobs.put(name, record)
        self._ports.jobs.launch(name)
        self._report_started(job, nodes, launched(record, now))

    def _report_started(
        self, job: JobView, nodes: Mapping[str, NodeView], record: JobRecord
    ) -> None:
        name = job.spec.name
        self._resume_incident(job, nodes)
        self._ports.jobs.put(name, record)
        self._reported.pop(name, None)
        self._ports.events.emit(started_event(name, record))

    def _stop(self, action: StopAttempt, job: JobView, now: datetime) -> None:
        record = after_job(job, action, now)
        self._stopped.pop(job.spec.name, None)  # from an earlier job of that name
        self._ports.jobs.put(job.spec.name, record)
        self._terminate(job.spec.name, record.attempt)
        failure = action.failure
        self._ports.events.emit(
            AttemptStopped(
                job=job.spec.name,
                attempt=record.attempt,
                kind=failure.kind if failure else "",
                reason=record.reason,
                node=failure.node if failure else "",
                evidence=failure.evidence if failure else "",
            )
        )

    def _terminate(self, job: str, attempt: int) -> None:
        """Send SIGTERM, also if the call was lost after the stop was recorded."""
        if self._stopped.get(job) != attempt:
            self._ports.jobs.stop(job)
            self._stopped[job] = attempt

    def _kill(self, action: KillAttempt, job: JobView, now: datetime) -> None:
        self._ports.jobs.kill(job.spec.name, action.nodes)
        self._ports.jobs.put(job.spec.name, after_job(job, action, now))
        if not job.record.kills:
            self._ports.events.emit(killed_event(action, job, now))

    def _conclude(
        self,
        action: Retry | ExchangeNode | Finish,
        job: JobView,
        nodes: Mapping[str, NodeView],
        now: datetime,
    ) -> None:
        failure = action.failure
        incident = None if failure is None else self._incident_of(failure, nodes)
        if failure is not None and incident is not None:
            action = replace(action, failure=replace(failure, incident_id=incident.id))
        record = after_job(job, action, now)
        self._ports.jobs.put(job.spec.name, record)
        if failure is not None and incident is not None:
            # After the record: once stored, the failure keeps this incident.
            touch = _touch(job, job.record.attempt, failure)
            self._ports.incidents.put(touched(incident, touch))
        if record.phase is JobPhase.FAILED:
            self._ended += [(job.spec.name, one) for one in record.attempts]
        self._ports.events.emit(verdict_event(action, job.spec, record))

    def _resume_incident(self, job: JobView, nodes: Mapping[str, NodeView]) -> None:
        """Record in the incident that stopped the job's last attempt that the job runs again."""
        over = job.record.attempts[-1] if job.record.attempts else None
        if over is None or over.failure is None:
            return
        incident = self._incident_of(over.failure, nodes)
        if incident is not None:
            touch = _touch(job, over.attempt, over.failure)
            now = self._ports.clock.now()
            self._ports.incidents.put(resumed(touched(incident, touch), job.spec.name, now))

    def _incident_of(self, failure: Failure, nodes: Mapping[str, NodeView]) -> Incident | None:
        """Return the incident of a failure; None if it has none, or none yet."""
        if failure.kind is FailureKind.APPLICATION:
            return None
        if failure.incident_id:
            return self._ports.incidents.get(failure.incident_id)
        node = nodes.get(failure.node)
        if node is not None and node.record.remediation is not None:
            return self._ports.incidents.get(node.record.remediation.incident_id)
        return next(
            (
                one
                for one in reversed(self._ports.incidents.list_incidents())
                if one.node
                and one.node == failure.node
                and (one.ended_at is None or one.ended_at >= failure.at)
            ),
            None,
        )


def _touch(job: JobView, attempt: int, failure: Failure) -> AffectedJob:
    return AffectedJob(
        job=job.spec.name, attempt=attempt, stopped_at=failure.began_at, step=failure.step
    )


def _with_jobs(nodes: Iterable[NodeView], jobs: Iterable[JobView]) -> Mapping[str, NodeView]:
    """Return nodes by name, each with its assigned jobs; a scheduler tracks its own."""
    by_name: Mapping[str, NodeView] = {node.name: node for node in nodes}
    for job in jobs:
        is_placed = job.spec.placing is not Placing.SCHEDULER
        if is_placed and job.record.phase is not JobPhase.WAITING:
            by_name = reserved(by_name, job.spec.name, job.record.placement)
    return by_name


def _suspected(one: SuspectNode, is_checked: bool) -> NodeSuspected | StragglerSuspected:  # noqa: FBT001 - a callback
    if one.request.job:
        return StragglerSuspected(node=one.node, evidence=one.evidence, is_checked=is_checked)
    return NodeSuspected(
        node=one.node, failures=one.failures, evidence=one.evidence, is_checked=is_checked
    )
