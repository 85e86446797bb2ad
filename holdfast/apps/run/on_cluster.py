"""Submits a job to a cluster on this machine, and follows it."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.local.cluster_store import (
    CheckpointsInUse,
    ClusterStore,
    JobLaunch,
    Occupancy,
    TooFewNodes,
)
from holdfast.adapters.local.layout import RunDir, cluster_dir, deleted_dir
from holdfast.adapters.local.lock import is_held
from holdfast.adapters.local.store import LocalStore, Submission
from holdfast.apps.clock import SystemClock
from holdfast.apps.run.cluster_state import is_creating, node_problem
from holdfast.apps.run.logs import RankLogs
from holdfast.apps.run.prepare import default_name, job_problems, new_job_id
from holdfast.apps.run.previous_jobs import (
    PreviousJob,
    last_with_checkpoints,
    report_resume,
    report_unused,
)
from holdfast.apps.run.screen import Screen
from holdfast.apps.run.settings import RunSettings
from holdfast.apps.run.summary import Summary, summarize
from holdfast.apps.run.waiting import STOP_SIGNALS
from holdfast.apps.views.run_jobs import emit_recorded
from holdfast.kit.signals import handling, heeded
from holdfast.model.errors import BackendError, ConfigError, HoldfastError, StateDamaged
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec
from holdfast.model.sagemaker import ClusterStatus

_POLL: Final = timedelta(milliseconds=50)

_UNMANAGED_POLLS: Final = 60
"""Number of polls without a process that manages the cluster, after which that is reported. A
restart of ``holdfast api`` takes less."""


@dataclass(slots=True)
class Followed:
    """A job on a cluster."""

    run: RunDir
    """Directory of the cluster."""

    deleted: RunDir
    """Directory of the cluster after its deletion."""

    job: str
    """ID of the job."""

    store: ClusterStore
    report: Callable[[str], None]
    """Prints further messages for a person."""

    events: int = 0
    """Number of the cluster's events that were read."""

    stop_signals: list[int] = field(default_factory=list)
    unmanaged: int = 0
    """Number of consecutive polls without a process that manages the cluster."""

    is_damage_reported: bool = False

    def follow(self, screen: Screen, logs: RankLogs) -> None:
        """Show the job until it has ended.

        A signal cancels the job; a second one, or one while no process manages the cluster, stops
        following at once.
        """
        with handling(heeded(STOP_SIGNALS), lambda number, _: self.stop_signals.append(number)):
            while not self._is_over(screen, logs):
                if self.stop_signals and self._is_left():
                    return
                self._check_supervisor()
                time.sleep(_POLL.total_seconds())

    @property
    def stopped_by(self) -> int | None:
        """Return the first signal that asked to end; None if there was none."""
        return self.stop_signals[0] if self.stop_signals else None

    def files(self) -> RunDir:
        """Return the directory of the job, wherever its cluster is now."""
        return self._place().of_job(self.job)

    def _place(self) -> RunDir:
        """Return the current directory of the cluster."""
        return self.run if self.run.of_job(self.job) != self.run else self.deleted

    def summary(self) -> Summary:
        """Return the summary of the job.

        A cluster that is being deleted moves when its last job has ended: the paths are those after
        the move.
        """
        place = self._place()
        final = place if self.store.groups() else self.deleted
        directory = final.moved_from(place, place.of_job(self.job).path)
        summary = summarize(self.store, self.job, directory=str(directory))
        checkpoints = final.moved_from(self.run, Path(summary.checkpoint_dir))
        return replace(summary, checkpoint_dir=str(checkpoints))

    def _is_left(self) -> bool:
        """Cancel the job. Returns whether to stop following and leave it to the cluster."""
        self.store.cancel_job(self.job)
        with contextlib.suppress(FileNotFoundError):
            self.run.wake.touch()
        if is_held(self.run):
            return len(self.stop_signals) > 1
        self.report(
            f"no process manages the cluster {self.run.name}; the job {self.job} is cancelled once "
            "holdfast api is started again"
        )
        return True

    def _is_over(self, screen: Screen, logs: RankLogs) -> bool:
        """Show what is new, also of a state that was restored. Returns whether the job has ended.

        Raises:
            BackendError: the state cannot be read, or the job is not in its backup.

        """
        if self.store.is_replaced():
            self.store.close()
            self.store = ClusterStore(self.run.state)
            self.events = self.store.event_count()
            self.report(f"the state of the cluster {self.run.name} was restored from its backup")
        try:
            return self._show(screen, logs)
        except StateDamaged as error:
            if not self.is_damage_reported:
                self.report(f"{error}; waiting until holdfast api has restored it")
            self.is_damage_reported = True
        except KeyError as error:
            raise BackendError(
                f"the job {self.job} is not in the restored state of the cluster; submit it again"
            ) from error
        return False

    def _check_supervisor(self) -> None:
        """Report once that no process manages the cluster."""
        self.unmanaged = 0 if is_held(self.run) else self.unmanaged + 1
        if self.unmanaged == _UNMANAGED_POLLS:
            self.report(
                f"no process manages the cluster {self.run.name}: holdfast api has ended; the job "
                f"{self.job} resumes once it is started again; Ctrl-C cancels the job"
            )

    def _show(self, screen: Screen, logs: RankLogs) -> bool:
        """Show new events and output. Returns whether the job had ended before they were read."""
        _, record, _ = self.store.job(self.job)
        for entry in self.store.events(self.events):
            self.events += 1
            if entry.get("job", self.job) == self.job:
                emit_recorded(entry, screen.event)
        for rank, line in logs.lines(record.attempt):
            screen.log(rank, line)
        for rank, line in logs.rest(record.attempt) if record.phase.is_final else ():
            screen.log(rank, line)
        return record.phase.is_final


@contextmanager
def handed_over(
    cluster: str, settings: RunSettings, report: Callable[[str], None]
) -> Iterator[Followed]:
    """Submit a job to a cluster.

    Raises:
        ConfigError: there is no such cluster, it has too few free nodes, or the job is invalid.

    """
    check_cluster(cluster, settings)
    run = cluster_dir(settings.home, cluster)
    with closing(ClusterStore(run.state)) as store:
        job = new_job_id(settings.name)
        own = RunDir(run.path / "jobs" / job)
        launch = _launch(settings, _checkpoints(store, settings, own))
        (own.path / "progress").mkdir(parents=True)
        Path(launch.checkpoint_dir).mkdir(parents=True, exist_ok=True)
        events = store.event_count()
        try:
            _submit(store, job, launch, settings)
        except BackendError as error:
            shutil.rmtree(own.path)
            raise _refusal(cluster, settings, error) from error
        run.wake.touch()
        report(f"job {job} submitted to the cluster {cluster}")
        if is_creating(settings.home, cluster):
            report(
                f"the cluster {cluster} is {ClusterStatus.CREATING}; the job waits for its nodes"
            )
        deleted = deleted_dir(settings.home, cluster, store.uid() or "")
        followed = Followed(run, deleted, job, store, report, events)
        try:
            yield followed
        finally:
            followed.store.close()  # another one, if the state was restored


def job_name(home: Path, cluster: str, command: Sequence[str]) -> str:
    """Return a name for a job that no job on the cluster has had yet."""
    state = cluster_dir(home, cluster).state
    if not state.is_file():
        return default_name((), command)
    with closing(LocalStore(state)) as store:
        taken = {one.name for one in store.submissions().values()}
    return default_name(taken, command)


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def check_cluster(cluster: str, settings: RunSettings) -> None:
    """Check that a job can be submitted to a cluster.

    Raises:
        ConfigError: with a line for each problem.

    """
    run = cluster_dir(settings.home, cluster)
    problems = list(job_problems(settings))
    if not run.state.is_file():
        problems.append(
            f"--cluster: no cluster {run.name!r} on this machine; see: holdfast clusters list"
        )
    elif not is_held(run):
        problems.append(
            f"--cluster: no process manages the cluster {run.name!r}: start holdfast api again"
        )
    elif problem := node_problem(settings.home, cluster):
        problems.append(f"--cluster: {problem}")
    if problems:
        raise ConfigError(problems)


def _checkpoints(store: ClusterStore, settings: RunSettings, own: RunDir) -> Path:
    """Return the checkpoint directory of a new job: its own, unless a person names another."""
    if settings.checkpoint_dir is not None:
        return settings.checkpoint_dir
    jobs = [
        PreviousJob(id=one.id, started_at=one.started_at, checkpoints=Path(one.checkpoint_dir))
        for one in store.submissions().values()
        if one.name == settings.name
    ]
    last = last_with_checkpoints(jobs)
    if not settings.resume:
        report_unused(settings.name, last)
        return own.checkpoints
    report_resume(settings.name, last)
    return own.checkpoints if last is None else last.checkpoints


def _launch(settings: RunSettings, checkpoints: Path) -> JobLaunch:
    return JobLaunch(
        argv=tuple(settings.command),
        nproc_per_node=settings.nproc_per_node,
        checkpoint_dir=str(checkpoints),
        directory=str(Path.cwd()),
        environment=dict(os.environ),
        master_port=settings.master_port,
        hang_timeout_s=_seconds(settings.hang_timeout),
        startup_timeout_s=_seconds(settings.startup_timeout),
        log_rules=settings.log_rules,
    )


def _submit(store: ClusterStore, job: str, launch: JobLaunch, settings: RunSettings) -> None:
    now = SystemClock().now()
    spec = JobSpec(
        name=job,
        nodes=settings.nodes,
        max_retries=settings.max_retries,
        max_app_retries=settings.max_app_retries,
        grace=settings.grace,
        fault_grace=settings.grace,
        keeps_ranks=settings.keeps_ranks,
    )
    submission = Submission(
        id=job,
        name=settings.name,
        command=launch.argv,
        pid=os.getpid(),
        started_at=now,
        checkpoint_dir=launch.checkpoint_dir,
    )
    record = JobRecord(phase=JobPhase.WAITING, phase_since=now)
    store.submit(spec, record, launch, submission, resumes=settings.resume)


def _refusal(cluster: str, settings: RunSettings, error: BackendError) -> HoldfastError:
    """Return the error for a job that a cluster did not accept, with the remedy."""
    if isinstance(error, TooFewNodes):
        return ConfigError(_shortage(cluster, settings, error.occupancy))
    if isinstance(error, CheckpointsInUse):
        return ConfigError(
            f"--resume: the job {error} still runs and writes the checkpoints; wait for it, or "
            f"cancel it with: holdfast jobs cancel {error}"
        )
    return BackendError(f"cluster {cluster}: {error}")


def _shortage(cluster: str, settings: RunSettings, occupancy: Occupancy) -> str:
    jobs = ", ".join(f"{job} needs {nodes}" for job, nodes in occupancy.jobs.items())
    free = max(occupancy.free, 0)
    fewer = f", use --nodes {free}" if free else ""
    return (
        f"--nodes: the job needs {settings.nodes}, and {free} of the {occupancy.total} nodes of "
        f"the cluster {cluster} are free ({jobs}); wait for a job to end, cancel one with: "
        f"holdfast jobs cancel JOB{fewer}, or add nodes with: holdfast clusters scale {cluster} "
        "GROUP COUNT"
    )
