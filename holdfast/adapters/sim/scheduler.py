"""Jobs that a simulated scheduler places and a simulated operator suspends and resumes."""

from collections.abc import Iterable
from dataclasses import replace

from holdfast.adapters.sim.machine import Power
from holdfast.adapters.sim.training import SIGKILL_EXIT, SIGTERM_EXIT, SimJob, SimRank
from holdfast.adapters.sim.world import SimNode, World
from holdfast.model.job_views import JobView, RankView
from holdfast.model.jobs import JobPhase, JobRecord, Placing
from holdfast.model.nodes import Phase

SUSPENDED = (JobPhase.STOPPING, JobPhase.WAITING)
"""Phases in which a job is suspended."""


def is_scheduled(job: SimJob) -> bool:
    """Whether a scheduler places a job."""
    return job.training.spec.placing is Placing.SCHEDULER


def follow(world: World, job: SimJob, before: JobRecord) -> None:
    """Suspend or resume a job after its record was stored, if its phase requires it."""
    is_suspended, was_suspended = (one.phase in SUSPENDED for one in (job.record, before))
    if is_suspended and not was_suspended:
        world.after(job.training.operator_time, _Suspension(world, job))
    if was_suspended and job.record.phase is JobPhase.STARTING:
        job.is_stop_seen = False
        world.after(job.training.operator_time, _Release(job))


class _Suspension:
    """The operator suspends a job and terminates its ranks."""

    def __init__(self, world: World, job: SimJob) -> None:
        self._world, self._job = world, job

    def __call__(self) -> None:
        world, job, training = self._world, self._job, self._job.training
        job.is_stop_seen, job.is_released, world.has_changes = True, False, True
        job.bound.clear()
        for rank in job.living():
            rank.is_terminated = True
            exits_itself = training.handles_sigterm and training.stop_time < training.spec.grace
            delay = training.stop_time if exits_itself else training.spec.grace
            code = SIGTERM_EXIT if exits_itself else SIGKILL_EXIT
            world.after(delay, _Ender(world, job, rank, code))


class _Release:
    """The operator resumes a job, so that its ranks are placed."""

    def __init__(self, job: SimJob) -> None:
        self._job = job

    def __call__(self) -> None:
        self._job.is_released = self._job.record.phase is JobPhase.STARTING


class _Ender:
    """Ends a rank if its machine is reachable."""

    def __init__(self, world: World, job: SimJob, rank: SimRank, exit_code: int) -> None:
        self._world, self._job, self._rank, self._code = world, job, rank, exit_code

    def __call__(self) -> None:
        if self._rank.is_reachable:
            self._world.end_rank(self._job, self._rank, self._code)


def schedule(world: World) -> None:
    """Bind waiting ranks to nodes, and start bound ranks whose machine is powered on."""
    for job in world.jobs.values():
        if not job.is_released:
            continue
        placed = {one.rank for one in job.ranks if one.attempt == job.record.attempt}
        waiting = set(range(job.training.spec.nodes)) - placed - job.bound.keys()
        free = [node.name for node in _open(world) if not _jobs_on(world, node.name)]
        for rank, name in zip(sorted(waiting), free, strict=False):
            job.bound[rank] = name
            world.has_changes = True
        for rank, name in sorted(job.bound.items()):
            node = world.nodes.get(name)
            if node is not None and node.machine.power is Power.ON:
                del job.bound[rank]
                world.start_rank(job, rank, node)


def _open(world: World) -> Iterable[SimNode]:
    """Return the schedulable nodes by name."""
    found = [node for node in world.nodes.values() if node.record.phase is Phase.SCHEDULABLE]
    return sorted(found, key=lambda node: node.name)


def _jobs_on(world: World, node: str) -> list[SimJob]:
    """Return the jobs with a running or bound rank on a node."""
    return [job for job in world.jobs.values() if node in job.places()]


def evict(world: World, job: SimJob, number: int) -> None:
    """Evict a rank of a job."""
    living = [rank for rank in job.living() if rank.is_reachable]
    if living:
        rank = living[number % len(living)]
        rank.is_evicted = True
        world.end_rank(job, rank, SIGTERM_EXIT)


def remove_fenced(world: World, job: SimJob) -> None:
    """Remove ranks whose machine is off or gone: they have ended, and nothing else reports it."""
    for rank in [one for one in job.lingering() if _is_fenced(one)]:
        world.end_rank(job, rank, SIGKILL_EXIT)
        job.ranks.remove(rank)
        world.has_changes = True


def kill_terminated(world: World, job: SimJob) -> None:
    """End the grace period of ranks that were sent SIGTERM, on machines that work."""
    for rank in job.living():
        if rank.is_terminated and rank.is_reachable:
            world.end_rank(job, rank, SIGKILL_EXIT)


def scheduled_view(world: World, job: SimJob) -> JobView:
    """Return the view of a job that a scheduler places."""
    view = job.view(world.now)
    if job.record.phase in SUSPENDED:
        left = job.lingering()
        is_waiting = job.record.phase is JobPhase.WAITING
        return replace(
            view,
            ranks=tuple(
                RankView(rank=one.rank, node=one.node, is_fenced=_is_fenced(one)) for one in left
            ),
            capacity=_capacity(world, job) if is_waiting else None,
            is_stop_seen=job.is_stop_seen,
        )
    attempt = [one for one in job.ranks if one.attempt == job.record.attempt]
    placement = dict.fromkeys((*job.record.placement, *job.places()))
    return replace(
        view,
        record=replace(job.record, placement=tuple(placement)),
        ranks=tuple(_rank(one) for one in sorted(attempt, key=lambda one: one.rank)),
    )


def _rank(rank: SimRank) -> RankView:
    if rank.is_lingering:
        return RankView(rank=rank.rank, node=rank.node)
    return RankView(
        rank=rank.rank,
        node=rank.node,
        exit_code=rank.exit_code,
        ended_at=rank.ended_at,
        is_evicted=rank.is_evicted,
    )


def _is_fenced(rank: SimRank) -> bool:
    return rank.machine.power in (Power.OFF, Power.REMOVED)


def _capacity(world: World, job: SimJob) -> dict[str, int]:
    """Return the free nodes, less those that unbound ranks of other starting jobs need."""
    others = [one for one in world.jobs.values() if one is not job and is_scheduled(one)]
    taken = {name for one in others for name in one.places()}
    promised = sum(
        one.training.spec.nodes - len(one.places())
        for one in others
        if one.record.phase is JobPhase.STARTING
    )
    free = [name for name in sorted(world.nodes) if name not in taken]
    return dict.fromkeys(free[promised:], 1)
