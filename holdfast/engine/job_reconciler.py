"""The job loop: observe, decide, act, record."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.decisions.incident_course import resumed, touched
from holdfast.decisions.job_lifecycle import after_job, launched
from holdfast.decisions.job_resume import ResumePolicy, decide_job
from holdfast.engine.node_reconciler import AFTER_ERROR, RESYNC
from holdfast.model.actions import (
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
from holdfast.model.incidents import JobTouch
from holdfast.model.jobs import Failure, JobRecord, JobView
from holdfast.model.nodes import NodeView
from holdfast.ports.clock import Clock
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.events import EventSink
from holdfast.ports.incidents import IncidentStore
from holdfast.ports.jobs import JobBackend


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPorts:
    """What the job loop talks to."""

    jobs: JobBackend
    cluster: ClusterBackend
    incidents: IncidentStore
    events: EventSink
    clock: Clock


class JobReconciler:
    """Keeps each job running on healthy nodes. Keeps no state that a restart would miss."""

    def __init__(self, ports: JobPorts, policy: ResumePolicy) -> None:
        self._ports = ports
        self._policy = policy
        self._told: dict[str, str] = {}  # only so that each reason to wait is told once

    def step(self) -> datetime:
        """Make one round.

        Returns:
            When to make the next, unless something happens before.

        Raises:
            StorageFull: nothing can be recorded, so nothing may be done.

        """
        now = self._ports.clock.now()
        try:
            jobs = self._ports.jobs.jobs()
            nodes = {node.name: node for node in self._ports.cluster.snapshot().nodes}
        except BackendError as error:
            return self._failed("reading the jobs", error, now)
        wake_times = [now + RESYNC]
        for job in jobs:
            choice = decide_job(job, nodes, self._policy, now)
            if isinstance(choice, Wait):
                self._tell_waiting(job, choice)
                wake_times += [choice.until] if choice.until is not None else []
            else:
                wake_times.append(self._act(choice, job, nodes, now))
        return min(wake_times)

    def _act(
        self, action: JobAction, job: JobView, nodes: Mapping[str, NodeView], now: datetime
    ) -> datetime:
        try:
            match action:
                case StartAttempt() | Relaunch():
                    self._launch(action, job, now)
                case StopAttempt():
                    self._stop(action, job, now)
                case KillAttempt():
                    self._ports.jobs.kill(job.spec.name)
                    self._ports.jobs.put(job.spec.name, after_job(job, action, now))
                    self._ports.events.emit(
                        AttemptKilled(job=job.spec.name, attempt=job.record.attempt)
                    )
                case Retry() | Finish():
                    self._conclude(action, job, nodes, now)
        except BackendError as error:
            return self._failed(f"{type(action).__name__} of {job.spec.name}", error, now)
        return now

    def _launch(self, action: StartAttempt | Relaunch, job: JobView, now: datetime) -> None:
        name = job.spec.name
        record = after_job(job, action, now)
        if isinstance(action, StartAttempt):
            self._ports.jobs.put(name, record)
        self._ports.jobs.launch(name)
        self._resume_incident(job, self._ports.clock.now())
        self._ports.jobs.put(name, launched(record, now))
        self._told.pop(name, None)
        self._ports.events.emit(
            AttemptStarted(job=name, attempt=record.attempt, nodes=record.placement)
        )

    def _stop(self, action: StopAttempt, job: JobView, now: datetime) -> None:
        record = after_job(job, action, now)
        self._ports.jobs.put(job.spec.name, record)
        self._ports.jobs.stop(job.spec.name)
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

    def _conclude(
        self, action: Retry | Finish, job: JobView, nodes: Mapping[str, NodeView], now: datetime
    ) -> None:
        if action.failure is not None:
            action = replace(action, failure=self._touch_incident(action.failure, job, nodes))
        record = after_job(job, action, now)
        self._ports.jobs.put(job.spec.name, record)
        self._ports.events.emit(_verdict_event(action, record))

    def _touch_incident(
        self, failure: Failure, job: JobView, nodes: Mapping[str, NodeView]
    ) -> Failure:
        """Note in the incident of the node at fault that it cost this job an attempt."""
        node = nodes.get(failure.node)
        course = node.record.course if node is not None else None
        name = course.incident_id if course is not None else self._last_incident(failure.node)
        incident = self._ports.incidents.get(name) if name else None
        if incident is None or failure.at < incident.detected_at:
            return failure
        touch = JobTouch(
            job=job.spec.name, attempt=job.record.attempt, stopped_at=failure.at, step=failure.step
        )
        self._ports.incidents.put(touched(incident, touch))
        return replace(failure, incident_id=incident.id)

    def _last_incident(self, node: str) -> str:
        """The newest incident of a node that was replaced meanwhile."""
        names = [one.id for one in self._ports.incidents.list_incidents() if one.node == node]
        return names[-1] if names else ""

    def _resume_incident(self, job: JobView, now: datetime) -> None:
        failure = job.record.failure
        incident = self._ports.incidents.get(failure.incident_id) if failure else None
        if incident is not None:
            self._ports.incidents.put(resumed(incident, job.spec.name, now))

    def _tell_waiting(self, job: JobView, wait: Wait) -> None:
        if wait.why and self._told.get(job.spec.name) != wait.why:
            self._told[job.spec.name] = wait.why
            self._ports.events.emit(JobWaits(job=job.spec.name, why=wait.why))

    def _failed(self, what: str, error: BackendError, now: datetime) -> datetime:
        if isinstance(error, StorageFull):
            raise error
        self._ports.events.emit(CallFailed(what=what, error=str(error)))
        return now + AFTER_ERROR


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
