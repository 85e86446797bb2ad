"""The jobs of the simulated platform."""

from collections.abc import Collection, Mapping

from holdfast.adapters.sim.call_gate import CallGate
from holdfast.adapters.sim.scheduler import (
    follow,
    is_scheduled,
    kill_terminated,
    remove_fenced,
    scheduled_view,
)
from holdfast.adapters.sim.training import SIGKILL_EXIT, SIGTERM_EXIT, SimJob, SimRank
from holdfast.adapters.sim.world import World
from holdfast.model.job_views import JobView
from holdfast.model.jobs import JobRecord
from holdfast.model.set_aside import SetAside


class SimJobs:
    """A ``JobBackend`` over a simulated world."""

    def __init__(self, world: World, gate: CallGate) -> None:
        self._world = world
        self._gate = gate

    def jobs(self) -> tuple[JobView, ...]:
        """See ``JobBackend.jobs``."""
        with self._gate.reading():
            return tuple(
                scheduled_view(self._world, job) if is_scheduled(job) else job.view(self._world.now)
                for job in self._world.jobs.values()
                if not job.record.phase.is_final
            )

    def moved_checkpoints(self) -> Mapping[str, tuple[SetAside, ...]]:
        """See ``JobBackend.moved_checkpoints``; a call only where something was moved."""
        moved = {
            name: job.checkpoints.history.aside
            for name, job in self._world.jobs.items()
            if job.checkpoints is not None and job.checkpoints.history.aside
        }
        if moved:
            with self._gate.reading():
                return moved
        return {}

    def put(self, job: str, record: JobRecord) -> None:
        """See ``JobBackend.put``."""
        with self._gate.writing():
            found = self._world.jobs[job]
            before = found.record
            found.put(record)
            if is_scheduled(found):
                follow(self._world, found, before)
            self._world.observer.job_put(found, before)

    def launch(self, job: str) -> None:
        """See ``JobBackend.launch``; a scheduler reads it from the stored record."""
        with self._gate.writing():
            found = self._world.jobs[job]
            if is_scheduled(found):
                return
            launched = {one.rank for one in found.ranks if one.attempt == found.record.attempt}
            for rank, name in enumerate(found.record.placement):
                node = self._world.nodes.get(name)
                if rank not in launched and node is not None:
                    self._world.start_rank(found, rank, node)
                    self._gate.midway()

    def stop(self, job: str) -> None:
        """See ``JobBackend.stop``; an operator reads it from the stored record."""
        with self._gate.writing():
            found = self._world.jobs[job]
            if is_scheduled(found):
                return
            for rank in found.living():
                if not rank.is_terminated and found.training.handles_sigterm:
                    rank.is_terminated = True
                    self._world.after(found.training.stop_time, _Ender(self._world, found, rank))

    def kill(self, job: str, nodes: Collection[str] = ()) -> None:
        """See ``JobBackend.kill``."""
        with self._gate.writing():
            found = self._world.jobs[job]
            if is_scheduled(found):
                remove_fenced(self._world, found)
                kill_terminated(self._world, found)
                return
            for rank in found.living():
                if nodes and rank.node not in nodes:
                    continue
                rank.is_killed = True
                if rank.is_reachable:
                    self._world.end_rank(found, rank, SIGKILL_EXIT)


class _Ender:
    """Terminates a rank that received SIGTERM, if its machine works by then."""

    def __init__(self, world: World, job: SimJob, rank: SimRank) -> None:
        self._world, self._job, self._rank = world, job, rank

    def __call__(self) -> None:
        if self._rank.is_reachable:
            self._world.end_rank(self._job, self._rank, SIGTERM_EXIT)
