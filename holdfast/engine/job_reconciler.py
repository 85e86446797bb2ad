"""The job loop: observe, decide, act, record."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.decisions.incident_course import resumed, touched
from holdfast.decisions.job_lifecycle import after_job, launched
from holdfast.decisions.job_resume import ResumePolicy, decide_job
from holdfast.decisions.placement import reserved
from holdfast.engine.node_reconciler import AFTER_ERROR, RESYNC
from holdfast.model.actions import (
    ConfirmStart,
    Finish,
    JobAction,
    KillAttempt,
    Relaunch,
    Retry,
    StartAttempt,
    StopAttempt,
    Wait,
)
from holdfast.model.errors import BackendError, StorageFull
from holdfast.model.events import (
    AttemptKilled,
    AttemptStarted,
    AttemptStopped,
    CallFailed,
    JobFinished,
    JobRetried,
    JobWaits,
)
from holdfast.model.incidents import Incident, JobTouch
from holdfast.model.jobs import Failure, FailureKind, JobPhase, JobRecord, JobView, Placing
from holdfast.model.nodes import NodeView
from holdfast.ports.clock import Clock
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.events import EventSink
from holdfast.ports.incidents import IncidentStore
from holdfast.ports.jobs import JobBackend
from holdfast.ports.leadership import Alone, Leadership


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPorts:
    """What the job loop talks to."""

    jobs: JobBackend
    cluster: ClusterBackend
    incidents: IncidentStore
    events: EventSink
    clock: Clock
    leadership: Leadership = field(default_factory=Alone)


class JobReconciler:
    """Keeps each job running on healthy nodes. Keeps no state that a restart would miss."""

    def __init__(self, ports: JobPorts, policy: ResumePolicy) -> None:
        self._ports = ports
        self._policy = policy
        self._told: dict[str, str] = {}  # only so that each reason to wait is told once
        self._stopped: dict[str, int] = {}  # only so that each attempt is sent SIGTERM once

    def step(self) -> datetime:
        """Make one round; it ends early when another controller takes the lead.

        Returns:
            When to make the next, unless something happens before.

        Raises:
            StorageFull: nothing can be recorded, so nothing may be done.

        """
        now = self._ports.clock.now()
        try:
            jobs = self._ports.jobs.jobs()
            if not jobs:
                return now + RESYNC
            nodes = _with_jobs(self._ports.cluster.snapshot().nodes, jobs)
        except BackendError as error:
            return self._failed("reading the jobs", error, now)
        wake_times = [now + RESYNC]
        has_scheduled = False
        for job in jobs:
            choice = decide_job(job, nodes, self._policy, now)
            if isinstance(choice, StartAttempt):
                is_scheduled = job.spec.placing is Placing.SCHEDULER
                if is_scheduled and has_scheduled:
                    wake_times.append(now)  # the room that it sees is that of the job before
                    continue
                has_scheduled |= is_scheduled
                nodes = reserved(nodes, job.spec.name, choice.placement)
            if not self._ports.leadership.is_held():
                return now + AFTER_ERROR
            wake_times.append(self._act(choice, job, nodes, now))
        return min(wake_times)

    def _act(
        self, action: JobAction | Wait, job: JobView, nodes: Mapping[str, NodeView], now: datetime
    ) -> datetime:
        try:
            match action:
                case Wait():
                    return self._wait(action, job, now)
                case StartAttempt() if job.spec.placing is Placing.SCHEDULER:
                    self._ports.jobs.put(job.spec.name, after_job(job, action, now))
                    self._ports.jobs.launch(job.spec.name)
                case StartAttempt() | Relaunch():
                    self._launch(action, job, nodes, now)
                case ConfirmStart():
                    self._tell_started(job, nodes, after_job(job, action, now))
                case StopAttempt():
                    self._stop(action, job, now)
                case KillAttempt():
                    self._kill(action, job, now)
                case Retry() | Finish():
                    self._conclude(action, job, nodes, now)
        except BackendError as error:
            return self._failed(f"{type(action).__name__} of {job.spec.name}", error, now)
        return now

    def _wait(self, wait: Wait, job: JobView, now: datetime) -> datetime:
        if job.record.phase is JobPhase.STOPPING and not job.record.kills:
            self._terminate(job.spec.name, job.record.attempt)
        if job.record.phase is JobPhase.STARTING:
            self._ports.jobs.launch(job.spec.name)
        if wait.why and self._told.get(job.spec.name) != wait.why:
            self._told[job.spec.name] = wait.why
            self._ports.events.emit(JobWaits(job=job.spec.name, why=wait.why))
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
        self._tell_started(job, nodes, launched(record, now))

    def _tell_started(self, job: JobView, nodes: Mapping[str, NodeView], record: JobRecord) -> None:
        name = job.spec.name
        self._resume_incident(job, nodes)
        self._ports.jobs.put(name, record)
        self._told.pop(name, None)
        self._ports.events.emit(
            AttemptStarted(job=name, attempt=record.attempt, nodes=record.placement)
        )

    def _stop(self, action: StopAttempt, job: JobView, now: datetime) -> None:
        record = after_job(job, action, now)
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
        """SIGTERM, also if the call was lost after the stop was recorded."""
        if self._stopped.get(job) != attempt:
            self._ports.jobs.stop(job)
            self._stopped[job] = attempt

    def _kill(self, action: KillAttempt, job: JobView, now: datetime) -> None:
        self._ports.jobs.kill(job.spec.name)
        self._ports.jobs.put(job.spec.name, after_job(job, action, now))
        if not job.record.kills:
            self._ports.events.emit(AttemptKilled(job=job.spec.name, attempt=job.record.attempt))

    def _conclude(
        self, action: Retry | Finish, job: JobView, nodes: Mapping[str, NodeView], now: datetime
    ) -> None:
        if action.failure is not None:
            incident = self._incident_of(action.failure, nodes)
            if incident is not None:
                touch = _touch(job, job.record.attempt, action.failure)
                self._ports.incidents.put(touched(incident, touch))
                action = replace(action, failure=replace(action.failure, incident_id=incident.id))
        record = after_job(job, action, now)
        self._ports.jobs.put(job.spec.name, record)
        self._ports.events.emit(_verdict_event(action, record))

    def _resume_incident(self, job: JobView, nodes: Mapping[str, NodeView]) -> None:
        """Note in the incident that cost this job its last attempt that it runs again."""
        over = job.record.attempts[-1] if job.record.attempts else None
        if over is None or over.failure is None:
            return
        incident = self._incident_of(over.failure, nodes)
        if incident is not None:
            touch = _touch(job, over.attempt, over.failure)
            now = self._ports.clock.now()
            self._ports.incidents.put(resumed(touched(incident, touch), job.spec.name, now))

    def _incident_of(self, failure: Failure, nodes: Mapping[str, NodeView]) -> Incident | None:
        """The incident that a failure belongs to; None if it has none, or none yet."""
        if failure.kind is FailureKind.APPLICATION:
            return None
        if failure.incident_id:
            return self._ports.incidents.get(failure.incident_id)
        node = nodes.get(failure.node)
        if node is not None and node.record.course is not None:
            return self._ports.incidents.get(node.record.course.incident_id)
        return next(
            (
                one
                for one in reversed(self._ports.incidents.list_incidents())
                if one.node == failure.node and (one.ended_at is None or one.ended_at >= failure.at)
            ),
            None,
        )

    def _failed(self, what: str, error: BackendError, now: datetime) -> datetime:
        if isinstance(error, StorageFull):
            raise error
        self._ports.events.emit(CallFailed(what=what, error=str(error)))
        return now + AFTER_ERROR


def _touch(job: JobView, attempt: int, failure: Failure) -> JobTouch:
    return JobTouch(job=job.spec.name, attempt=attempt, stopped_at=failure.at, step=failure.step)


def _verdict_event(action: Retry | Finish, record: JobRecord) -> JobRetried | JobFinished:
    if isinstance(action, Finish):
        return JobFinished(job=action.job, outcome=action.outcome, reason=action.reason)
    return JobRetried(
        job=action.job,
        kind=action.failure.kind,
        reason=action.failure.reason,
        hardware_retries=record.hardware_retries,
        app_retries=record.app_retries,
    )


def _with_jobs(nodes: Iterable[NodeView], jobs: Iterable[JobView]) -> Mapping[str, NodeView]:
    """Nodes by name, each with the jobs that were given it."""
    by_name: Mapping[str, NodeView] = {node.name: node for node in nodes}
    for job in jobs:
        if job.record.phase is not JobPhase.WAITING:
            by_name = reserved(by_name, job.spec.name, job.record.placement)
    return by_name
