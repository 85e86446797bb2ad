"""Backend of batch jobs on Slurm that Holdfast resumes after node faults."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from holdfast.adapters.slurm.commands.comment import CommentRequest, Key, parse
from holdfast.adapters.slurm.commands.job_text import COMPLETING, WAITING, BatchJob
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.commands.node_text import JobFacts
from holdfast.adapters.slurm.jobs.advice import stop_message
from holdfast.adapters.slurm.jobs.drift import JobDriftCorrection
from holdfast.adapters.slurm.jobs.holds import JobHolds
from holdfast.adapters.slurm.jobs.supervisor_reports import SupervisorReports, slow_job
from holdfast.adapters.slurm.jobs.unmanaged_runs import UnmanagedRuns
from holdfast.adapters.slurm.jobs.views import (
    PREFIX,
    Case,
    JobDefaults,
    Run,
    auto_resumes,
    deleted_view,
    is_supervised,
    job_view,
    run_of,
)
from holdfast.adapters.slurm.jobs.watch import BUSY, JobWatch, MovedFrom, StepOf
from holdfast.adapters.slurm.nodes.reservations import ReservableNodes, Reservations
from holdfast.adapters.slurm.nodes.state import RememberedJob, SlurmStore
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.decisions.job_failures import withdrawn
from holdfast.model.errors import BackendError
from holdfast.model.events import JobInputRejected
from holdfast.model.job_views import JobView
from holdfast.model.jobs import JobPhase, JobRecord
from holdfast.model.nodes import NodeView
from holdfast.model.set_aside import SetAside
from holdfast.ports.clock import Clock
from holdfast.ports.events import EventSink

_KILL_WAIT: Final = timedelta(seconds=30)
"""Slurm's default KillWait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDependencies:
    """Dependencies of the jobs other than Slurm."""

    clock: Clock
    events: EventSink
    """Sink for reports of invalid values and of calls that failed outside of rounds."""

    changed: Callable[[], None]
    """Called, from any thread, when a new round may be needed."""

    may_act: Callable[[], bool]
    """Whether this process may change the cluster now."""

    nodes: ReservableNodes
    step_of: StepOf
    moved_from: MovedFrom


class SlurmJobs:
    """A ``JobBackend``; works from ``open`` to ``close``.

    A job is stopped by requeueing it, and held by its start time, so that Slurm starts it by itself
    if no controller is left to release it. The state that a phase requires is enforced before each
    round: slurmctld may lose changes that it received shortly before a crash.
    """

    def __init__(self, settings: SlurmSettings, store: SlurmStore, around: JobDependencies) -> None:
        self._settings = settings
        self._store = store
        self._around = around
        self._slurm = JobCommands(settings.conf, settings.timeout)
        self._watch = JobWatch(self._slurm, around.step_of, around.moved_from, around.changed)
        self._reservations = Reservations(self._slurm, around.nodes, settings.spares)
        self._holds = JobHolds(self._slurm, self._reservations, around.clock, around.events)
        self._drift = JobDriftCorrection(
            self._slurm, self._holds, self._reservations, store, around.clock, around.events
        )
        self._reports = SupervisorReports(around.events)
        self._unmanaged = UnmanagedRuns(around.nodes.node_state)
        self._unreadable: frozenset[JobInputRejected] = frozenset()
        self._is_busy = False
        self._cases: dict[str, Case] = {}
        self._resumable: frozenset[str] = frozenset()
        self._checkpoints: Mapping[str, tuple[str, str]] = {}
        self._supervised: frozenset[str] = frozenset()
        self._slow: tuple[JobView, ...] = ()
        self._config: Mapping[str, str] = {}

    def open(self) -> None:
        """Start to watch for changes; returns at once."""
        self._watch.start()

    def close(self) -> None:
        """Stop the thread, after the command in progress has ended."""
        self._watch.stop()

    def stops_itself(self, job: str) -> bool:
        """Whether the node loop must leave a job to the component that resumes it.

        Reads the job anew, as its Comment may be newer than the last round.
        """
        if job in self._resumable:
            return True
        found = self._watch.read().get(job)
        return found is not None and self._auto_resumes(found, parse(found.comment))

    def displaces(self, job: str, node: NodeView) -> None:
        """Record that the node loop requeues a job that does not request auto-resume yet."""
        self._unmanaged.note(job, withdrawn(node, self._around.clock.now()))

    def left(self, jobs: Iterable[JobFacts]) -> frozenset[tuple[str, str]]:
        """Return pairs of a supervised job and an allocated node on which it runs no step."""
        pairs = {(job.id, node) for job in jobs if job.id in self._supervised for node in job.nodes}
        return frozenset(pairs - self._slurm.step_nodes()) if pairs else frozenset()

    def jobs(self) -> tuple[JobView, ...]:
        """See ``JobBackend.jobs``; a process that may act corrects drift first."""
        now = self._around.clock.now()
        self._config = self._config or self._slurm.settings()
        found = self._watch.read()
        requests = {name: parse(job.comment) for name, job in found.items() if job.is_batch}
        requests = {
            name: one for name, one in requests.items() if self._auto_resumes(found[name], one)
        }
        self._resumable = frozenset(requests)
        self._checkpoints = {
            name: (found[name].number, one.checkpoint)
            for name, one in requests.items()
            if one.checkpoint
        }
        if self._around.may_act():
            self._drift.archive_reused(found)
            self._reports.emit(requests, {name for name in requests if found[name].is_over})
            self._report_unreadable()
        self._unmanaged.refresh(found, now)
        self._is_busy = any(job.is_batch and job.has_nodes for job in found.values())
        self._supervised = frozenset(
            name for name, request in requests.items() if is_supervised(found[name], request)
        )
        slow = (slow_job(found[name], request, now) for name, request in requests.items())
        self._slow = tuple(one for one in slow if one is not None)
        self._cases = dict(self._managed(found, requests, now))
        if self._around.may_act():
            self._reservations.refresh()
            self._drift.run(found, self._cases, self._resumable, self._config)
        self._set_interval()
        views = [self._view(case, now) for case in self._cases.values()]
        records = {name: one.record for name, one in self._store.read().jobs.items()}
        removed = (
            deleted_view(name, record)
            for name, record in sorted(records.items())
            if name not in found and not record.phase.is_final
        )
        return (*views, *removed)

    def moved_checkpoints(self) -> Mapping[str, tuple[SetAside, ...]]:
        """See ``JobBackend.moved_checkpoints``: of directories that a Comment names."""
        return {
            f"{PREFIX}{name}": tuple(one for one in self._watch.moved(folder) if one.job == number)
            for name, (number, folder) in self._checkpoints.items()
        }

    def stragglers(self) -> tuple[JobView, ...]:
        """Return the running jobs whose supervisors report a straggler, as of the last round."""
        return self._slow

    def put(self, job: str, record: JobRecord) -> None:
        """See ``JobBackend.put``."""
        name = job.removeprefix(PREFIX)
        before = self._store.read().jobs.get(name)
        case = self._cases.get(name)
        if case is None:
            if before is None:
                raise BackendError(f"{job} no longer exists")
            self._store.put_job(name, replace(before, record=record))
            return
        is_next = record.attempt > case.run.record.attempt
        is_left = record.phase.is_final and case.job.state in WAITING  # see JobDriftCorrection
        is_new = is_next or is_left
        run = Run(record=record, restarts=case.job.restarts if is_new else case.run.restarts)
        is_seen = record.phase is JobPhase.RUNNING or not case.machines
        spec = self._view(case, self._around.clock.now()).spec
        remembered = RememberedJob(
            record=record,
            user=case.job.user,
            restarts=run.restarts,
            machines=self._machines(case.job) if is_seen else case.machines,
            nodes=spec.nodes,
            max_retries=spec.max_retries,
            notes=before.notes if before is not None else (),
        )
        self._store.put_job(name, remembered)
        self._cases[name] = self._case(case.job, case.request, run, remembered)

    def launch(self, job: str) -> None:
        """See ``JobBackend.launch``: reserve nodes for the job, and let it start in two seconds."""
        self._holds.let_start(self._known(job))
        self._refresh_soon()

    def stop(self, job: str) -> None:
        """See ``JobBackend.stop``: reserve its good nodes, requeue it, and hold it."""
        case = self._known(job)
        failure = case.run.record.failure
        if failure is not None and case.job.is_at_work:
            view = self._view(case, self._around.clock.now())
            notify = partial(self._slurm.notify_job, case.job.number, stop_message(view, failure))
            self._holds.attempt(f"writing into the output of {job}", notify)
        self._holds.stop(case)
        self._refresh_soon()

    def kill(self, job: str, nodes: Collection[str] = ()) -> None:
        """See ``JobBackend.kill``: Slurm kills after its KillWait, except on nodes that are off.

        Slurm would wait for a reply of those nodes forever.
        """
        case = self._known(job)
        off = {
            one.node for one in self._view(case, self._around.clock.now()).ranks if one.is_fenced
        }
        if case.job.state == COMPLETING:
            for node in off & set(nodes or case.job.nodes):
                self._slurm.clear_node(node)
        self._refresh_soon()

    def _report_unreadable(self) -> None:
        """Report checkpoint directories that cannot be read, once for as long as that lasts."""
        found = frozenset(
            JobInputRejected(
                job=f"{PREFIX}{name}",
                key=Key.CHECKPOINT,
                value=folder,
                expected=f"a directory that the controller can read: {problem}",
            )
            for name, (_, folder) in self._checkpoints.items()
            if (problem := self._watch.problem(folder))
        )
        for event in sorted(found - self._unreadable, key=lambda one: one.job):
            self._around.events.emit(event)
        self._unreadable = found

    def _managed(
        self, found: Mapping[str, BatchJob], requests: Mapping[str, CommentRequest], now: datetime
    ) -> Iterator[tuple[str, Case]]:
        memory = self._store.read()
        for name, request in requests.items():
            if name in memory.unreadable_jobs:
                continue
            remembered = memory.jobs.get(name)
            unmanaged = None if remembered else self._unmanaged.record(found[name], now)
            run = run_of(found[name], request, remembered, now, unmanaged)
            if run is not None:
                yield name, self._case(found[name], request, run, remembered)

    def _auto_resumes(self, job: BatchJob, request: CommentRequest) -> bool:
        return auto_resumes(job, request, self._settings.requeue_jobs)

    def _case(
        self, job: BatchJob, request: CommentRequest, run: Run, remembered: RememberedJob | None
    ) -> Case:
        is_same = remembered is not None and remembered.restarts == run.restarts
        machines = remembered.machines if remembered is not None and is_same else {}
        names = {*machines, *run.record.placement, *job.nodes}
        nodes = {name: self._around.nodes.node_state(name) for name in names}
        return Case(job=job, request=request, run=run, machines=machines, nodes=nodes)

    def _view(self, case: Case, now: datetime) -> JobView:
        is_waiting = case.run.record.phase is JobPhase.WAITING
        capacity = self._capacity(case) if is_waiting else None
        return job_view(
            case, self._defaults(), capacity, self._watch.step(case.request.checkpoint), now
        )

    def _capacity(self, case: Case) -> Mapping[str, bool]:
        """Return the job's own nodes, the spare nodes and the idle nodes; see ``job_view``."""
        job = case.job
        own = (*case.names, *self._reservations.of(job.id))
        names = dict.fromkeys((*own, *self._reservations.free(job.partition)))
        return {name: self._around.nodes.node_state(name).is_good for name in names}

    def _defaults(self) -> JobDefaults:
        fields = self._config.get("KillWait", "").split()
        is_reported = bool(fields) and fields[0].isdecimal()
        return JobDefaults(
            max_retries=self._settings.max_retries,
            kill_wait=timedelta(seconds=int(fields[0])) if is_reported else _KILL_WAIT,
            off_after=self._settings.off_after,
        )

    def _machines(self, job: BatchJob) -> dict[str, str]:
        states = {name: self._around.nodes.node_state(name).facts for name in job.nodes}
        return {name: "" if one is None else one.slurmd for name, one in states.items()}

    def _known(self, job: str) -> Case:
        try:
            return self._cases[job.removeprefix(PREFIX)]
        except KeyError:
            raise BackendError(f"{job} no longer exists") from None

    def _refresh_soon(self) -> None:
        self._watch.invalidate()
        self._watch.set_interval(BUSY)

    def _set_interval(self) -> None:
        """Poll often while a job is stopping or starting, and not at all while none is."""
        is_quiet = all(case.run.record.phase is JobPhase.RUNNING for case in self._cases.values())
        idle = self._settings.poll if self._resumable or self._is_busy else None
        self._watch.set_interval(idle if is_quiet and not self._reservations.jobs else BUSY)
        self._watch.follow(folder for _, folder in self._checkpoints.values())
