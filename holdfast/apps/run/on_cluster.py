"""A job on a cluster of this machine that is there already: handed over, then followed."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Final

from holdfast.adapters.local.cluster_store import ClusterStore, JobGoesOn, JobLaunch
from holdfast.adapters.local.layout import RunDir, cluster_dir
from holdfast.adapters.local.lock import is_held
from holdfast.adapters.local.store import RunRecord
from holdfast.apps.clock import SystemClock
from holdfast.apps.job_status import event_told
from holdfast.apps.run.logs import RankLogs
from holdfast.apps.run.prepare import job_problems
from holdfast.apps.run.screen import Screen
from holdfast.apps.run.settings import RunSettings
from holdfast.apps.run.summary import Summary, summarize
from holdfast.apps.run.waiting import STOP_SIGNALS
from holdfast.model.errors import ConfigError
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec

_LOOK: Final = timedelta(milliseconds=50)


@dataclass(slots=True)
class Followed:
    """A job that a cluster runs; its name is that of the cluster."""

    run: RunDir
    store: ClusterStore
    events: int
    """How many there were before it."""

    stop_signals: list[int] = field(default_factory=list)

    def follow(self, screen: Screen, logs: RankLogs) -> None:
        """Show the job until it has ended; a signal has it end, a second one only leaves it."""
        earlier = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
        try:
            while not self._show(screen, logs) and len(self.stop_signals) < 2:
                if self.stop_signals:
                    self.store.cancel_job(self.run.name)
                    self.run.wake.touch()
                time.sleep(_LOOK.total_seconds())
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)

    @property
    def stopped_by(self) -> int | None:
        """The first signal that asked to end, or None."""
        return self.stop_signals[0] if self.stop_signals else None

    def summary(self) -> Summary:
        """What the job came to."""
        return summarize(self.store, self.run.name, directory=str(self.run.path))

    def _show(self, screen: Screen, logs: RankLogs) -> bool:
        """Show the news; whether the job has ended, asked before so that nothing is missed."""
        _, record, _ = self.store.jobs()[self.run.name]
        for entry in self.store.events()[self.events :]:
            self.events += 1
            event_told(entry, screen.event)
        for rank, line in logs.lines(record.attempt):
            screen.log(rank, line)
        for rank, line in logs.rest() if record.phase.is_final else ():
            screen.log(rank, line)
        return record.phase.is_final

    def _note(self, number: int, _: FrameType | None) -> None:
        self.stop_signals.append(number)


@contextmanager
def handed_over(cluster: str, settings: RunSettings) -> Iterator[Followed]:
    """Give a job to a cluster.

    Raises:
        ConfigError: there is no such cluster, it has a job already, or the command is none.

    """
    run = cluster_dir(settings.home, cluster)
    check_cluster(cluster, settings)
    launch = JobLaunch(
        argv=tuple(settings.command),
        nproc_per_node=settings.nproc_per_node,
        checkpoint_dir=str(settings.checkpoint_dir or run.checkpoints),
        directory=str(Path.cwd()),
        environment=dict(os.environ),
        master_port=settings.master_port,
        hang_timeout_s=None
        if settings.hang_timeout is None
        else settings.hang_timeout.total_seconds(),
    )
    Path(launch.checkpoint_dir).mkdir(parents=True, exist_ok=True)
    now = SystemClock().now()
    spec = JobSpec(
        name=cluster,
        nodes=settings.nodes,
        max_retries=settings.max_retries,
        max_app_retries=settings.max_app_retries,
        grace=settings.grace,
    )
    described = RunRecord(
        command=launch.argv,
        pid=os.getpid(),
        started_at=now,
        checkpoint_dir=launch.checkpoint_dir,
    )
    with closing(ClusterStore(run.state)) as store:
        events = len(store.events())
        record = JobRecord(phase=JobPhase.WAITING, phase_since=now)
        try:
            store.submit(spec, record, launch, described, lambda: _put_by(run))
        except JobGoesOn as error:
            raise ConfigError(
                f"--cluster: {error}; a cluster on this machine runs one job at a time: wait for "
                f"it, or end it with: holdfast jobs cancel {cluster}"
            ) from error
        run.wake.touch()
        yield Followed(run, store, events)


def check_cluster(cluster: str, settings: RunSettings) -> None:
    """Find what keeps a job from being given to a cluster.

    Raises:
        ConfigError: with a line for each problem.

    """
    run = cluster_dir(settings.home, cluster)
    problems = list(job_problems(settings))
    if not run.state.is_file():
        problems.append(
            f"--cluster: there is no cluster {run.name!r} on this machine; see: holdfast clusters "
            "list"
        )
    elif not is_held(run):
        problems.append(
            f"--cluster: nobody looks after the cluster {run.name!r}: start holdfast api again"
        )
    if problems:
        raise ConfigError(problems)


def _put_by(run: RunDir) -> None:
    """Move the logs of the job before out of the way; attempts count from 1 again."""
    number = 1
    while (kept := run.path / "earlier" / str(number)).exists():
        number += 1
    for name in ("logs", "progress"):
        old = run.path / name
        if old.exists() and any(old.iterdir()):
            kept.mkdir(parents=True, exist_ok=True)
            old.rename(kept / name)
    (run.path / "progress").mkdir(exist_ok=True)
