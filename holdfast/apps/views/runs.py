"""View of the runs on this machine, active and ended ones."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import click

from holdfast.adapters.local.layout import RunDir, runs
from holdfast.adapters.local.lock import is_held
from holdfast.adapters.local.store import LocalStore, Submission
from holdfast.apps.views.nodes import JobRank, NodeStatus
from holdfast.apps.views.not_found import NotFound, no_such
from holdfast.apps.views.run_nodes import RunNow, node_hardware, node_statuses
from holdfast.model.errors import BackendError
from holdfast.model.hardware import DeviceGroup
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec
from holdfast.model.nodes import Breaker
from holdfast.model.requests import Request

_ON_NODES: Final = (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """Job of a run or a cluster, active or ended."""

    run: "KnownRun"
    spec: JobSpec
    record: JobRecord
    cancel_requested: bool
    submission: Submission

    @property
    def key(self) -> str:
        """``JobSpec.name``, unique in the store of its run."""
        return self.spec.name

    @property
    def name(self) -> str:
        """Name of the job; a run and its job have the same name."""
        return self.submission.name if self.run.directory.is_cluster else self.run.name

    @property
    def id(self) -> str:
        """Unique ID."""
        return self.submission.id

    @property
    def ref(self) -> str:
        """Unique reference on this machine: the ID on a cluster, where names may be reused."""
        return self.id if self.run.directory.is_cluster else self.run.name

    @property
    def is_active(self) -> bool:
        """Whether it is managed now; a cluster may be active after its jobs ended."""
        return self.run.is_active and not self.record.phase.is_final

    @property
    def files(self) -> RunDir:
        """Directory of its logs and progress."""
        return self.run.directory.of_job(self.key)


@dataclass(frozen=True, slots=True)
class KnownRun:
    """Opened run: a ``Fleet``. Its methods raise ``BackendError`` if its state is damaged."""

    directory: RunDir
    store: LocalStore
    is_active: bool
    """Whether its Holdfast process is running."""

    @property
    def name(self) -> str:
        """Name of the run or of the cluster."""
        return self.directory.name

    def jobs(self) -> list[KnownJob]:
        """Return all its jobs, oldest first; a plain run has one."""
        known = self.store.submissions()
        return [
            KnownJob(
                run=self,
                spec=spec,
                record=record,
                cancel_requested=cancel,
                submission=known[key],
            )
            for key, (spec, record, cancel) in self.store.jobs().items()
        ]

    def recent_jobs(self) -> list[KnownJob]:
        """Return the jobs that have not ended, or else the last job."""
        jobs = self.jobs()
        return [one for one in jobs if not one.record.phase.is_final] or jobs[-1:]

    @property
    def has_job(self) -> bool:
        """Whether there is a job, active or ended."""
        return bool(self.store.jobs())

    def ranks(self) -> dict[str, JobRank]:
        """See ``Fleet.ranks``."""
        return {
            node: JobRank(job.ref, rank)
            for job in (self.recent_jobs() if self.is_active else ())
            if job.record.phase in _ON_NODES
            for rank, node in enumerate(job.record.placement)
        }

    def nodes(self, *, brief: bool = False) -> list[NodeStatus]:  # noqa: ARG002 - takes no calls
        """See ``Fleet.nodes``."""
        now = RunNow(
            directory=self.directory,
            store=self.store,
            is_active=self.is_active,
            ranks=self.ranks(),
        )
        return node_statuses(now)

    def incidents(self) -> tuple[Incident, ...]:
        """See ``Fleet.incidents``."""
        return self.store.list_incidents()

    def hardware(self, node: str) -> tuple[DeviceGroup, ...]:
        """See ``Fleet.hardware``."""
        return node_hardware(self.directory.node(node))

    def submit(self, node: str, request: Request) -> str:
        """See ``Fleet.submit``."""
        self.store.put_request(node, request)
        self.wake()
        return "" if is_held(self.directory) else f"run {self.name} has just ended"

    def hold(self, node: str, why: str) -> None:
        """See ``Fleet.hold``."""
        self.store.hold(node, why)
        self.wake()

    def breaker(self) -> Breaker:
        """See ``Fleet.breaker``."""
        return self.store.breaker()

    def close_breaker(self, now: datetime) -> None:
        """See ``Fleet.close_breaker``."""
        self.store.put_breaker(Breaker(reset_at=now))
        self.wake()

    def has_ended(self) -> bool:
        """See ``Fleet.has_ended``."""
        return not is_held(self.directory)

    @property
    def poll_interval_s(self) -> float:
        """See ``Fleet.poll_interval_s``."""
        return 0.1

    def describe_ranks(self) -> str:
        """See ``Fleet.describe_ranks``."""
        if not self.is_active:
            return "the run has ended"
        count = len(self.ranks())
        if not self.has_job:
            return "the cluster has no job"
        if count == 0:
            return f"the job is {self.recent_jobs()[-1].record.phase}"
        return f"ranks 0 to {count - 1}" if count > 1 else "rank 0 only"

    def wake(self) -> None:
        """Wake the run, so that it reads the recorded requests at once."""
        self.directory.wake.touch()


@contextlib.contextmanager
def open_runs(
    home: Path, name: str | None = None, *, ended: bool = False, deleted: bool = False
) -> Iterator[list[KnownRun]]:
    """Open the run or cluster with this name, or else all active ones and those selected.

    Without a name, a run whose state cannot be read is skipped with a message on standard error.
    A run whose job is not submitted yet is skipped.

    Args:
        home: home directory of runs.
        name: name of a run or cluster; None for all.
        ended: whether to open ended runs, too.
        deleted: whether to open deleted clusters, too.

    Raises:
        NotFound: there is no run with this name.
        BackendError: the state of the run with this name cannot be read.

    """
    known = list(runs(home, deleted=deleted))
    with contextlib.ExitStack() as stack:
        opened = []
        for run in known:
            is_active = is_held(run)
            if run.name != name and (name is not None or not (is_active or ended)):
                continue
            try:
                store = stack.enter_context(contextlib.closing(LocalStore(run.state)))
                if store.jobs() or run.is_cluster:
                    opened.append(KnownRun(run, store, is_active))
            except BackendError as error:
                if name is not None:
                    raise
                click.echo(f"holdfast: skipping run {run.name}: {error}", err=True)
        if name is not None and not opened:
            raise NotFound(no_such("run", name, [run.name for run in known]))
        yield opened


def find_job(text: str, known: Sequence[KnownRun]) -> KnownJob:
    """Return a job by its ID or its name.

    A name selects the active job with this name, or else the last one.

    Raises:
        NotFound: there is no such job, or several active jobs have the name.

    """
    jobs = [job for run in known for job in run.jobs()]
    for job in jobs:
        if job.id == text:
            return job
    named = [job for job in jobs if text in (job.name, job.ref)]
    active = [job for job in named if job.is_active]
    if len(active) > 1:
        refs = ", ".join(job.ref for job in active)
        raise NotFound(f"{text!r} is ambiguous ({refs}); use the ID of the job")
    if not named:
        raise NotFound(no_such("job", text, list(dict.fromkeys(job.ref for job in jobs))))
    return (active or sorted(named, key=lambda one: one.submission.started_at))[-1]
