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
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.fleet import NodeStatus, NotFound, no_such
from holdfast.apps.node_status import RunNow, node_statuses
from holdfast.model.errors import BackendError
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec
from holdfast.model.nodes import Breaker
from holdfast.model.requests import Request

_ON_NODES: Final = (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING)


@dataclass(frozen=True, slots=True)
class KnownRun:
    """One run, opened: a ``Fleet``. Its methods raise ``BackendError`` if its state is broken."""

    directory: RunDir
    store: LocalStore
    is_active: bool
    """Whether its Holdfast runs now."""

    @property
    def name(self) -> str:
        """The name of the run, and of its job."""
        return self.directory.name

    def job(self) -> tuple[JobSpec, JobRecord, bool]:
        """Its job as in ``LocalStore.jobs``.

        Raises:
            NotFound: it is a cluster that was given none yet.

        """
        for job in self.store.jobs().values():
            return job
        raise NotFound(
            f"the cluster {self.name} has no job yet; start one with: holdfast run --cluster "
            f"{self.name} -- COMMAND"
        )

    @property
    def has_job(self) -> bool:
        """Whether there is a job, over or not."""
        return bool(self.store.jobs())

    def placement(self) -> tuple[str, ...]:
        """The node of each rank that runs now, by node rank; empty while none does."""
        if not self.has_job:
            return ()
        _, record, _ = self.job()
        return record.placement if self.is_active and record.phase in _ON_NODES else ()

    def nodes(self) -> list[NodeStatus]:
        """See ``Fleet.nodes``."""
        now = RunNow(
            directory=self.directory,
            store=self.store,
            is_active=self.is_active,
            placement=self.placement(),
        )
        return node_statuses(now)

    def incidents(self) -> tuple[Incident, ...]:
        """See ``Fleet.incidents``."""
        return self.store.list_incidents()

    def ask(self, node: str, request: Request) -> str:
        """See ``Fleet.ask``."""
        self.store.ask(node, request)
        self.wake()
        return "" if is_held(self.directory) else f"run {self.name} has ended just now"

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

    def shown_ranks(self) -> str:
        """See ``Fleet.shown_ranks``."""
        if not self.is_active:
            return "the run has ended"
        count = len(self.placement())
        if not self.has_job:
            return "the cluster has no job"
        if count == 0:
            return f"the job is {self.job()[1].phase}"
        return f"ranks 0 to {count - 1}" if count > 1 else "rank 0 only"

    def wake(self) -> None:
        """Have the run look at once at what was recorded for it."""
        self.directory.wake.touch()


@contextlib.contextmanager
def open_runs(
    home: Path, name: str | None = None, *, ended: bool = False
) -> Iterator[list[KnownRun]]:
    """Open the run called ``name``; without a name all that go on and, if ``ended``, all others.

    Among several runs, one whose state cannot be read is left out with a word on standard error. A
    run in its first moment, before its job is submitted, is not there yet.

    Raises:
        NotFound: there is no run of that name.
        BackendError: the state of the run of that name cannot be read.

    """
    known = list(runs(home))
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
                click.echo(f"holdfast: run {run.name} is left out: {error}", err=True)
        if name is not None and not opened:
            raise NotFound(no_such("run", name, [run.name for run in known]))
        yield opened


def find_run(job: str, known: Sequence[KnownRun]) -> KnownRun:
    """The run whose job is called so.

    Raises:
        NotFound: there is none.

    """
    for run in known:
        if run.name == job:
            return run
    raise NotFound(no_such("job", job, [run.name for run in known if run.has_job]))
