"""The jobs of the local platform: one rank process for each node."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machine import Machine
from holdfast.adapters.local.machines import LocalMachines
from holdfast.adapters.local.ports import free_port
from holdfast.adapters.local.progress import Progress, read_progress
from holdfast.adapters.local.store import LocalStore
from holdfast.model.jobs import (
    ATTEMPT_VARIABLE,
    Ending,
    JobPhase,
    JobRecord,
    JobSpec,
    JobView,
    RankView,
)
from holdfast.ports.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What every rank of the job is launched with."""

    argv: Sequence[str]
    nproc_per_node: int
    checkpoint_dir: Path
    master_port: int | None = None
    """None for a free one, another with each attempt."""

    hang_timeout: timedelta | None = None
    """Without a new step for so long, the job hangs; None if that is not watched."""

    directory: Path = field(default_factory=Path.cwd)
    """Where its ranks begin."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """What they have in their environment besides."""


class LocalJobs:
    """A ``JobBackend`` over the machines of one run or cluster.

    Args:
        run: their directory.
        machines: on which ranks run.
        store: holds the records of jobs.
        launch: how the ranks of a job are launched, by ``JobSpec.name``.
        clock: the time.
        ending: how all jobs end whose ranks are gone; None while they may run.

    """

    def __init__(
        self,
        run: RunDir,
        machines: LocalMachines,
        store: LocalStore,
        launch: Callable[[str], Launch],
        clock: Clock,
        ending: Callable[[], Ending | None] = lambda: None,
    ) -> None:
        self._run = run
        self._machines = machines
        self._store = store
        self._launch = launch
        self._clock = clock
        self._ending = ending
        self._advanced: dict[str, tuple[datetime, Progress, datetime]] = {}
        self._ports: dict[str, tuple[int, int]] = {}

    def jobs(self) -> tuple[JobView, ...]:
        """See ``JobBackend.jobs``."""
        return tuple(
            self._view(spec, record, cancel=cancel)
            for spec, record, cancel in self._store.active_jobs().values()
        )

    def view(self, job: str) -> JobView:
        """One job, final or not.

        Raises:
            KeyError: there is no such job.

        """
        spec, record, cancel = self._store.job(job)
        return self._view(spec, record, cancel=cancel)

    def put(self, job: str, record: JobRecord) -> None:
        """See ``JobBackend.put``."""
        self._store.put_job(job, record)

    def launch(self, job: str) -> None:
        """See ``JobBackend.launch``."""
        spec, record, _ = self._store.job(job)
        launch = self._launch(job)
        for rank, name in enumerate(record.placement):
            machine = self._machines.get(name)
            if machine is not None:
                machine.launch(
                    _task(job, record.attempt, rank),
                    launch.argv,
                    self._environment(spec, record, rank, launch),
                    self._run.of_job(job).log(record.attempt, rank),
                    launch.directory,
                )

    def stop(self, job: str) -> None:
        """See ``JobBackend.stop``."""
        for _, machine in self._launched(job, self._store.job(job)[1]):
            machine.signal_task(signal.SIGTERM)

    def kill(self, job: str) -> None:
        """See ``JobBackend.kill``."""
        for _, machine in self._launched(job, self._store.job(job)[1]):
            machine.kill_task(self._clock.now())

    def occupied(self) -> frozenset[str]:
        """Nodes on which a rank of an active job runs now."""
        return frozenset(
            one.node for job in self.jobs() for one in job.ranks if one.exit_code is None
        )

    def _launched(self, job: str, record: JobRecord) -> list[tuple[int, Machine]]:
        machines = [(rank, self._machines.get(name)) for rank, name in enumerate(record.placement)]
        return [
            (rank, machine)
            for rank, machine in machines
            if machine is not None
            and machine.task is not None
            and machine.task.name == _task(job, record.attempt, rank)
        ]

    def _view(self, spec: JobSpec, record: JobRecord, *, cancel: bool) -> JobView:
        progress = read_progress(self._run.of_job(spec.name).progress(record.attempt))
        ranks = tuple(
            RankView(
                rank=rank,
                node=machine.name,
                exit_code=machine.task.exit_code,
                ended_at=machine.task.ended_at,
            )
            for rank, machine in self._launched(spec.name, record)
            if machine.task is not None
        )
        is_running = any(one.exit_code is None for one in ranks)
        return JobView(
            spec=spec,
            record=record,
            ranks=ranks,
            ending=None if is_running else self._ending(),
            first_step=progress.first,
            step=progress.last,
            hung_since=self._hung_since(spec, record, progress),
            cancel_requested=cancel,
        )

    def _hung_since(self, spec: JobSpec, record: JobRecord, progress: Progress) -> datetime | None:
        """Since when no new step came, if that is longer than allowed."""
        timeout = self._launch(spec.name).hang_timeout
        if timeout is None or record.phase is not JobPhase.RUNNING:
            return None
        now = self._clock.now()
        known = self._advanced.get(spec.name)
        if known is None or known[:2] != (record.phase_since, progress):
            self._advanced[spec.name] = known = (record.phase_since, progress, now)
        return known[2] if now - known[2] >= timeout else None

    def _environment(
        self, spec: JobSpec, record: JobRecord, rank: int, launch: Launch
    ) -> Mapping[str, str]:
        """What torchrun and the Kubeflow training operator give, and our own variables."""
        port = str(self._port(spec.name, record.attempt, launch))
        nproc = launch.nproc_per_node
        return {
            **launch.environment,
            "PYTHONUNBUFFERED": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": str(spec.nodes * nproc),
            "RANK": str(rank),
            "PET_NNODES": str(spec.nodes),
            "PET_NODE_RANK": str(rank),
            "PET_NPROC_PER_NODE": str(nproc),
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": port,
            "HOLDFAST_RUN": str(self._run.path),
            "HOLDFAST_JOB": spec.name,
            "HOLDFAST_NODE": record.placement[rank],
            ATTEMPT_VARIABLE: str(record.attempt),
            "HOLDFAST_CHECKPOINT_DIR": str(launch.checkpoint_dir),
            "HOLDFAST_PROGRESS_FILE": str(self._run.of_job(spec.name).progress(record.attempt)),
        }

    def _port(self, job: str, attempt: int, launch: Launch) -> int:
        """One port for an attempt, however often its launch is repeated."""
        if launch.master_port is not None:
            return launch.master_port
        known = self._ports.get(job)
        if known is None or known[0] != attempt:
            self._ports[job] = known = (attempt, free_port())
        return known[1]


def _task(job: str, attempt: int, rank: int) -> str:
    return f"{job}/{attempt}/{rank}"
