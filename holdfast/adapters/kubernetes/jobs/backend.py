"""Job backend for the Kubernetes training jobs that have auto-resume enabled."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Conflict, Json, NotFound
from holdfast.adapters.kubernetes.jobs.attempt_findings import with_findings
from holdfast.adapters.kubernetes.jobs.checkpoint_events import CheckpointReporting
from holdfast.adapters.kubernetes.jobs.conditions import SUSPENDED_PHASES
from holdfast.adapters.kubernetes.jobs.crash_logs import CrashLogs
from holdfast.adapters.kubernetes.jobs.fitting import capacity, unclaimed
from holdfast.adapters.kubernetes.jobs.hang_watch import HangWatch, Watched, watched
from holdfast.adapters.kubernetes.jobs.informer import JobInformer
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.adapters.kubernetes.jobs.next_attempt import prepare_attempt
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodState
from holdfast.adapters.kubernetes.jobs.pod_operator import PodOperator
from holdfast.adapters.kubernetes.jobs.pod_removal import PodRemoval
from holdfast.adapters.kubernetes.jobs.pods import AttemptPods, FinalPodStates, moves_of
from holdfast.adapters.kubernetes.jobs.queues import Workloads
from holdfast.adapters.kubernetes.jobs.records import FAILED, is_restart, record_patch
from holdfast.adapters.kubernetes.jobs.release import release_job
from holdfast.adapters.kubernetes.jobs.requests import JobRequests, requests_of
from holdfast.adapters.kubernetes.jobs.views import (
    exchanged_pods,
    is_stop_overdue,
    job_view,
    nodes_of,
    record_of,
)
from holdfast.adapters.kubernetes.nodes.cluster import KubernetesCluster
from holdfast.adapters.kubernetes.nodes.dependencies import Dependencies
from holdfast.adapters.kubernetes.nodes.pods import PodOwner
from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.engine.repeats import RepeatLimiter
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed, JobInputRejected
from holdfast.model.job_views import JobView
from holdfast.model.jobs import JobPhase, JobRecord
from holdfast.model.names import Labels
from holdfast.model.set_aside import SetAside

_TRIES: Final = 5
"""Write attempts; a job whose object changes more often meanwhile is written in a later round."""


@dataclass(slots=True)
class _Job:
    """Job with its requests, pods and record as last read."""

    state: JobState
    follower: JobInformer
    seen_at: datetime
    requests: JobRequests
    pods: list[PodState] = field(default_factory=list)
    record: JobRecord | None = None
    """Record as the decision core last read it; None while the job is not managed."""

    is_known: bool = True
    """Whether the state is current; False while objects of its kind cannot be read."""


class KubernetesJobs:
    """``JobBackend`` of a cluster; operates from ``open`` to ``close``.

    The record of an attempt and the suspension that belongs to it are one write, so that no crash
    can separate them. After that write the operators stop and start the pods.
    """

    def __init__(
        self,
        api: Api,
        settings: KubernetesSettings,
        dependencies: Dependencies,
        cluster: KubernetesCluster,
        kinds: Iterable[JobKind] = KINDS,
    ) -> None:
        self._api = api
        self._dependencies = dependencies
        self._repeats = RepeatLimiter(dependencies.events)
        self._cluster = cluster
        self._removal = PodRemoval(api, cluster)
        self._operator = PodOperator(api, dependencies)
        self._labels = Labels(settings.label_prefix)
        final_states = FinalPodStates()
        followers: dict[str, JobInformer] = {}
        managed = [kind for kind in kinds if kind.kind in settings.job_kinds]
        for kind in managed:  # a kind that has pods precedes the kinds that use it as body
            body = followers[kind.body.plural] if kind.body is not None else None
            followers[kind.plural] = JobInformer(
                api, kind, self._labels, final_states, dependencies.changed, body
            )
        self._followers = tuple(followers.values())
        self._attempts = AttemptPods(final_states)
        self._crash_logs = CrashLogs(api, dependencies.may_act)
        self._workloads = Workloads(api)
        self._hangs = HangWatch(
            api,
            dependencies.clock,
            dependencies.changed,
            captures_stacks=settings.capture_stacks,
            reads_heartbeats=settings.read_heartbeats,
        )
        self._jobs: dict[str, _Job] = {}
        self._pods: frozenset[str] = frozenset()
        self._reporting = CheckpointReporting(dependencies.events)
        self._last_error: set[tuple[str, str, str]] = set()

    def open(self) -> None:
        """Start the informers and the hang detection; returns at once."""
        for follower in self._followers:
            follower.start()
        self._hangs.start()

    def close(self) -> None:
        """Stop all threads; waits for calls in progress."""
        self._hangs.stop()
        for follower in self._followers:
            follower.stop()

    @property
    def errors(self) -> tuple[str, ...]:
        """Reasons why cached objects or hang detection are out of date."""
        return (*(one.error for one in self._followers if one.error), *self._hangs.errors)

    def owner(self, job: str) -> PodOwner | None:
        """Return the object of a job, for Events; None if there is none of that name."""
        known = self._jobs.get(job)
        if known is None:
            return None
        state = known.state
        return PodOwner(
            api_version=state.api_version,
            kind=state.kind,
            namespace=state.namespace,
            name=state.name,
            uid=state.uid,
        )

    def stops_itself(self, pod: str) -> bool:
        """Whether a pod, as ``namespace/name``, belongs to a job that is stopped as a whole."""
        return pod in self._pods

    def jobs(self) -> tuple[JobView, ...]:
        """See ``JobBackend.jobs``; the leader first releases jobs with auto-resume disabled."""
        now = self._dependencies.clock.now()
        self._jobs = dict(self._read(now))
        may_act = self._dependencies.may_act()
        self._hangs.follow(self._watched() if may_act else ())
        if may_act:
            self._operator.step(self._jobs.values())
            self._reject()
            self._reporting.emit(
                (pod.uid, pod.checkpoint_report, key, job.record.attempt)
                for key, job in self._jobs.items()
                if job.record is not None
                for pod in job.pods
            )
            for job in self._jobs.values():
                if job.is_known:
                    self._release_job(job)
                    self._remove_ended(job)
        self._attempts.keep(job.state.uid for job in self._jobs.values() if job.record is not None)
        views = tuple(self._views())
        managed = (job for job in self._jobs.values() if job.record is not None)
        pods = (pod for job in managed for pod in job.pods)
        self._pods = frozenset(f"{pod.namespace}/{pod.name}" for pod in pods)
        return views

    def moved_checkpoints(self) -> Mapping[str, tuple[SetAside, ...]]:
        """See ``JobBackend.moved_checkpoints``: from the status and the logs of pods."""
        return {
            key: (*moves_of(job.pods), *self._hangs.findings(job.state.uid).moved)
            for key, job in self._jobs.items()
            if job.record is not None
        }

    def put(self, job: str, record: JobRecord) -> None:
        """See ``JobBackend.put``; the same write suspends or resumes the job."""
        known = self._known(job)
        state = known.state
        renews = is_restart(record)
        for _ in range(_TRIES):
            whole = self._api.get(state.path)
            fresh = known.follower.kind.trimmed(whole, self._labels)
            is_over = fresh.ending is not None and state.ending is None
            if fresh.is_other_than(state) or (is_over and not record.phase.is_final):
                known.follower.learn(whole)
                raise BackendError(f"{job} was changed concurrently")
            try:
                if record.phase is JobPhase.FAILED and fresh.ending is None:
                    self._fail(known, whole, record)
                    continue
                if renews:
                    whole = prepare_attempt(self._api, known.follower.kind, whole, state, record)
                    renews = False
                    fresh = known.follower.kind.trimmed(whole, self._labels)
                patch = record_patch(whole, fresh, known.follower.kind, record, known.requests)
                known.follower.learn(self._api.patch(state.path, patch))
            except Conflict:
                continue
            known.record = record
            return
        raise BackendError(f"{job} changes too often, its record was not written")

    def launch(self, job: str) -> None:
        """See ``JobBackend.launch``; without Kueue ``put`` has resumed the job already."""
        known = self._known(job)
        if known.record is not None:
            if known.state.queue is not None and is_restart(known.record):
                self._workloads.admit(known.state, known.record.attempt)
            self._removal.exchange(exchanged_pods(known.record, known.pods))

    def stop(self, job: str) -> None:
        """See ``JobBackend.stop``; ``put`` has suspended the job, so this deletes ended pods.

        Some operators keep them; they must not be attributed to the next attempt.
        """
        known = self._known(job)
        if known.state.queue is not None:
            self._workloads.suspend(known.state)
        self._removal.delete(pod for pod in known.pods if pod.has_ended)

    def kill(self, job: str, nodes: Collection[str] = ()) -> None:
        """See ``JobBackend.kill``; the operator has the pods' own grace period to delete them."""
        known, now = self._known(job), self._dependencies.clock.now()
        pods = (pod for pod in known.pods if not nodes or pod.node in nodes)
        self._removal.kill(pods, is_overdue=is_stop_overdue(known.state, known.record, now))

    def _read(self, now: datetime) -> Iterable[tuple[str, _Job]]:
        """Yield all jobs; jobs of a kind that cannot be read keep their last state."""
        errors = []
        for follower in self._followers:
            try:
                yield from self._read_kind(follower, now)
            except BackendError as error:
                errors.append(error)
                if len(errors) == len(self._followers):
                    raise
                self._failed(f"reading {follower.kind.plural}", error)
                for key, job in self._jobs.items():
                    if job.follower is follower:
                        yield key, replace(job, is_known=False)

    def _read_kind(self, follower: JobInformer, now: datetime) -> Iterable[tuple[str, _Job]]:
        pods = follower.pods()
        for name, state in follower.jobs().items():
            before = self._jobs.get(state.key)
            is_same = before is not None and before.state.uid == state.uid
            seen_at = before.seen_at if before is not None and is_same else now
            requests = (
                before.requests
                if before is not None and before.state == state
                else requests_of(state, self._labels)
            )
            job = _Job(state=state, follower=follower, seen_at=seen_at, requests=requests)
            job.record = self._record(job)
            job.pods = [pod for pod in pods.get(name, ()) if state.owns(pod)]
            yield state.key, job

    def _record(self, job: _Job) -> JobRecord | None:
        """See ``record_of``; also None while the state of the job's Kueue workload is unknown."""
        state, requests = job.state, job.requests
        try:
            awaits_restart = (
                requests.record is not None and requests.record.phase in SUSPENDED_PHASES
            )
            is_requested = state.queue is not None and awaits_restart
            is_active = self._workloads.is_active(state) if is_requested else True
        except BackendError as error:
            self._failed(f"reading {state.key}", error)
            return None
        return record_of(state, requests, job.seen_at, is_active=is_active)

    def _failed(self, what: str, error: BackendError) -> None:
        self._repeats.emit(CallFailed(what=what, error=str(error)), self._dependencies.clock.now())

    def _views(self) -> Iterable[JobView]:
        """Yield the views; a job that cannot be read does not prevent the others."""
        for job in self._jobs.values():
            if job.record is not None and job.is_known:
                try:
                    yield self._view(job, job.record)
                except BackendError as error:
                    self._failed(f"reading {job.state.key}", error)

    def _view(self, job: _Job, record: JobRecord) -> JobView:
        state = job.state
        left = exchanged_pods(record, job.pods)
        own = [pod for pod in job.pods if pod.member.part == state.part and pod not in left]
        is_waiting = record.phase is JobPhase.WAITING
        if is_waiting:
            self._attempts.forget(state.uid)
        if record.phase in SUSPENDED_PHASES:
            return job_view(
                state,
                job.requests,
                record,
                job.pods,
                lost={} if is_waiting else self._attempts.lost(state.uid, record.attempt, own),
                counts={},
                fenced=[pod for pod in job.pods if self._removal.is_stuck(pod)],
                capacity=self._capacity(job) if is_waiting else None,
            )
        pods = self._crash_logs.explained(own)
        lost = self._attempts.lost(state.uid, record.attempt, pods)
        counts = {node: self._counts(node) for node in nodes_of(record, pods, lost)}
        view = job_view(state, job.requests, record, pods, lost=lost, counts=counts)
        return with_findings(view, self._hangs.findings(state.uid), pods, self._cluster.find)

    def _watched(self) -> Iterable[Watched]:
        found = (
            watched(one.state, one.requests, one.record, one.pods) for one in self._jobs.values()
        )
        return (one for one in found if one is not None)

    def _capacity(self, job: _Job) -> Mapping[str, int]:
        """Return free ranks per node beside all other jobs, including their unscheduled pods."""
        others = [one for one in self._jobs.values() if one is not job and one.record is not None]
        nodes = self._cluster.node_states()
        pods = (pod for one in others for pod in one.pods)
        found = capacity(job.state.groups, nodes.values(), pods, self._labels)
        for name in job.record.placement if job.record is not None else ():
            if name not in found and self._cluster.is_watched(name):
                found[name] = 1  # its Node object is deleted while the machine is replaced
        for one in others:
            if one.record is not None and one.record.phase is JobPhase.STARTING:
                missing = one.state.ranks - sum(1 for pod in one.pods if pod.node)
                found = unclaimed(found, one.state.groups, missing, nodes, self._labels)
        return found

    def _counts(self, node: str) -> bool:
        """Whether a node's health affects a job: the node is managed, or no longer exists."""
        return self._cluster.is_watched(node) or self._cluster.find(node) is None

    def _remove_ended(self, job: _Job) -> None:
        """Delete terminating pods of a stopping job that have ended on cordoned nodes.

        Such a node may be rebooted before its kubelet removes them; the job would wait for it.
        """
        if job.record is None or job.record.phase is not JobPhase.STOPPING:
            return
        try:
            self._removal.delete_ended(job.pods)
        except BackendError as error:
            self._failed(f"removing ended pods of {job.state.key}", error)

    def _known(self, job: str) -> _Job:
        try:
            return self._jobs[job]
        except KeyError:
            raise BackendError(f"{job} no longer exists") from None

    def _fail(self, job: _Job, whole: Json, record: JobRecord) -> None:
        """Set a job failed before its record is written, else it would stay suspended forever."""
        patch = job.follower.kind.failed(
            whole, FAILED, record.reason, self._dependencies.clock.now()
        )
        patch["metadata"] = {"resourceVersion": whole["metadata"]["resourceVersion"]}
        self._api.patch(f"{job.state.path}/status", patch)

    def _release_job(self, job: _Job) -> None:
        """Undo Holdfast's changes to a job whose auto-resume was disabled."""
        state, requests = job.state, job.requests
        is_managed = state.record is not None or state.is_marked
        if not is_managed or requests.auto_resume or requests.is_damaged or state.is_leaving:
            return
        try:
            job.follower.learn(
                release_job(self._api, self._workloads, job.follower.kind, state, requests.record)
            )
        except (NotFound, Conflict):
            return  # the next round reads the new state
        except BackendError as error:
            self._failed(f"releasing {state.key}", error)

    def _reject(self) -> None:
        """Report invalid input as events, once while it is present."""
        found = {
            (key, one.key, one.value): one.expected
            for key, job in self._jobs.items()
            for one in (*job.requests.rejected, *self._hangs.rejected(job.state.uid))
        }
        for (job, key, value), expected in sorted(found.items()):
            if (job, key, value) not in self._last_error:
                self._dependencies.events.emit(
                    JobInputRejected(job=job, key=key, value=value, expected=expected)
                )
        self._last_error = set(found)
