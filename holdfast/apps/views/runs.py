"""The runs of this machine as other commands find them, while they go on and afterwards."""

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
from holdfast.apps.views.nodes import JobRank, NodeStatus, NotFound, no_such
from holdfast.apps.views.run_nodes import RunNow, node_statuses
from holdfast.model.errors import BackendError
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec
from holdfast.model.nodes import Breaker
from holdfast.model.requests import Request

_ON_NODES: Final = (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """One job of a run or a cluster, over or not."""

    run: "KnownRun"
    spec: JobSpec
    record: JobRecord
    cancel_requested: bool
    submission: Submission

    @property
    def key(self) -> str:
        """Its ``JobSpec.name``, unique in the store of its run."""
        return self.spec.name

    @property
    def name(self) -> str:
        """What people call it; a run and its job share their name."""
        return self.submission.name if self.run.directory.is_cluster else self.run.name

    @property
    def id(self) -> str:
        """Its unique ID; a job of an earlier release has its name only."""
        return self.submission.id or self.name

    @property
    def ref(self) -> str:
        """Names it among all that this machine knows: on a cluster, names may come back."""
        return self.id if self.run.directory.is_cluster else self.run.name

    @property
    def is_active(self) -> bool:
        """Whether it is managed now; a cluster outlives its jobs."""
        return self.run.is_active and not self.record.phase.is_final

    @property
    def files(self) -> RunDir:
        """Directory of its logs and progress."""
        return self.run.directory.of_job(self.key)


@dataclass(frozen=True, slots=True)
class KnownRun:
    """One run, opened: a ``Fleet``. Its methods raise ``BackendError`` if its state is broken."""

    directory: RunDir
    store: LocalStore
    is_active: bool
    """Whether its Holdfast runs now."""

    @property
    def name(self) -> str:
        """The name of the run or of the cluster."""
        return self.directory.name

    def jobs(self) -> list[KnownJob]:
        """All its jobs, oldest first; a plain run has one."""
        known = self.store.submissions()
        return [
            KnownJob(
                run=self,
                spec=spec,
                record=record,
                cancel_requested=cancel,
                submission=known.get(key) or _unknown(self.name, record),
            )
            for key, (spec, record, cancel) in self.store.jobs().items()
        ]

    def recent_jobs(self) -> list[KnownJob]:
        """Those that are not over; if there are none, the last one."""
        jobs = self.jobs()
        return [one for one in jobs if not one.record.phase.is_final] or jobs[-1:]

    @property
    def has_job(self) -> bool:
        """Whether there is a job, over or not."""
        return bool(self.store.jobs())

    def ranks(self) -> dict[str, JobRank]:
        """See ``Fleet.ranks``."""
        return {
            node: JobRank(job.ref, rank)
            for job in (self.recent_jobs() if self.is_active else ())
            if job.record.phase in _ON_NODES
            for rank, node in enumerate(job.record.placement)
        }

    def nodes(self) -> list[NodeStatus]:
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

    def submit(self, node: str, request: Request) -> str:
        """See ``Fleet.submit``."""
        self.store.ask(node, request)
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
    def pause_s(self) -> float:
        """See ``Fleet.pause_s``."""
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
        """Have the run look at once at what was recorded for it."""
        self.directory.wake.touch()


@contextlib.contextmanager
def open_runs(
    home: Path, name: str | None = None, *, ended: bool = False, deleted: bool = False
) -> Iterator[list[KnownRun]]:
    """Open the run or cluster called ``name``; without a name all that are active and others.

    Among several runs, one whose state cannot be read is left out with a message on standard error.
    A run in its first moment, before its job is submitted, is not there yet.

    Args:
        home: where runs lie.
        name: of one of them; all if left out.
        ended: whether to open runs that have ended, too.
        deleted: whether to open deleted clusters, too.

    Raises:
        NotFound: there is no run of that name.
        BackendError: the state of the run of that name cannot be read.

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
                click.echo(f"holdfast: run {run.name} is skipped: {error}", err=True)
        if name is not None and not opened:
            raise NotFound(no_such("run", name, [run.name for run in known]))
        yield opened


def find_job(text: str, known: Sequence[KnownRun]) -> KnownJob:
    """The job that a person means by its ID or its name.

    A name means the active job of that name, or else the last one.

    Raises:
        NotFound: there is none, or several active jobs have the name.

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


def _unknown(name: str, record: JobRecord) -> Submission:
    """What is known of how a job was submitted where nothing was noted."""
    return Submission(
        name=name, command=(), pid=0, started_at=record.phase_since, checkpoint_dir=""
    )
