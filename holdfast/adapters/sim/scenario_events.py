"""Effects of scenario events on the simulated world."""

from datetime import timedelta

from holdfast.adapters.sim.machine import Power, SimMachine
from holdfast.adapters.sim.scenario import (
    Cancels,
    DefectAppears,
    Evicts,
    FallsSilent,
    Hangs,
    LosesPower,
    Outage,
    RemedyRequest,
    ResetsBreaker,
    RunsOut,
    ScenarioEvent,
    Vanishes,
)
from holdfast.adapters.sim.scheduler import evict, is_scheduled
from holdfast.adapters.sim.training import SIGKILL_EXIT, SIGTERM_EXIT
from holdfast.adapters.sim.world import SimNode, World
from holdfast.model.nodes import Breaker
from holdfast.model.requests import Request


def apply_event(world: World, scenario_event: ScenarioEvent) -> None:
    """Apply an event now; it has no effect if its target is not in a suitable state."""
    world.has_changes = True
    match scenario_event:
        case DefectAppears() | LosesPower() | Vanishes() | Hangs() | FallsSilent():
            _apply_to_machine(world, _node(world, scenario_event.node).machine, scenario_event)
        case RemedyRequest():
            _request_remedy(world, _node(world, scenario_event.node), scenario_event)
        case ResetsBreaker():
            world.breaker = Breaker(reset_at=world.now)
        case Cancels():
            jobs = sorted(world.jobs)
            if jobs:
                world.jobs[jobs[scenario_event.job % len(jobs)]].cancel_requested = True
        case Evicts():
            placed = [job for _, job in sorted(world.jobs.items()) if is_scheduled(job)]
            if placed:
                evict(world, placed[scenario_event.job % len(placed)], scenario_event.rank)
        case RunsOut():
            world.owner.out_until = world.now + scenario_event.lasts
        case Outage():  # the controller's calls check the clock
            return


def _node(world: World, number: int) -> SimNode:
    names = sorted(world.nodes)
    return world.nodes[names[number % len(names)]]


def _apply_to_machine(
    world: World,
    machine: SimMachine,
    scenario_event: DefectAppears | LosesPower | Vanishes | Hangs | FallsSilent,
) -> None:
    is_on = machine.power is Power.ON
    match scenario_event:
        case DefectAppears(defect=defect) if is_on:
            world.break_machine(machine, defect)
        case LosesPower() if machine.power is not Power.REMOVED:
            world.cut(machine, Power.OFF)
        case Vanishes() if machine.power is not Power.REMOVED:
            world.cut(machine, Power.REMOVED)
        case Hangs() if is_on:
            hang(world, machine, scenario_event.lasts)
        case FallsSilent() if machine.is_reporting:
            _fall_silent(world, machine, scenario_event)


def hang(world: World, machine: SimMachine, lasts: timedelta | None) -> None:
    """Freeze a working machine for ``lasts``; until a repair if None."""
    boot = machine.boot
    machine.hang(world.now)
    if machine.is_reporting:
        machine.fall_silent(world.now)
    for job, rank in world.living_ranks():
        if rank.machine is machine:
            job.halt(world.now)

    def recover() -> None:
        if machine.boot == boot and machine.power is Power.HUNG:
            _recover(world, machine)

    if lasts is not None:
        world.after(lasts, recover)


def _recover(world: World, machine: SimMachine) -> None:
    """Resume a frozen machine; its processes receive the signals that were sent meanwhile."""
    machine.power = Power.ON
    machine.send_heartbeat(world.now)
    world.has_changes = True
    for job, rank in world.living_ranks():
        if rank.machine is machine and (rank.is_killed or rank.is_terminated):
            world.end_rank(job, rank, SIGKILL_EXIT if rank.is_killed else SIGTERM_EXIT)
    for job in world.jobs.values():
        living = [one for one in job.living() if one.attempt == job.record.attempt]
        if len(living) == job.training.spec.nodes and all(one.is_reachable for one in living):
            job.resume(world.now)
            world.await_end(job)


def _fall_silent(world: World, machine: SimMachine, silence: FallsSilent) -> None:
    boot = machine.boot
    machine.fall_silent(world.now)

    def send_heartbeat() -> None:
        if machine.boot == boot and machine.power is Power.ON and not machine.is_reporting:
            machine.send_heartbeat(world.now)
            world.has_changes = True

    world.after(silence.lasts, send_heartbeat)


def _request_remedy(world: World, node: SimNode, request: RemedyRequest) -> None:
    node.request = Request(
        id=f"request-{next(world.numbers)}",
        verb=request.verb,
        requested_at=world.now,
        requested_by="operator",
        urgency=request.urgency,
    )
