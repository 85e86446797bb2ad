"""Simulation loop: the real engine in a simulated world and simulated time."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.adapters.sim.call_gate import CallGate, ControllerKilled
from holdfast.adapters.sim.cluster import SimCluster
from holdfast.adapters.sim.jobs import SimJobs
from holdfast.adapters.sim.provider import SimProvider
from holdfast.adapters.sim.records import SimClock, SimEvents, SimIncidents
from holdfast.adapters.sim.scenario import Outage, Scenario, ScenarioEvent
from holdfast.adapters.sim.scenario_events import apply_event
from holdfast.adapters.sim.scheduler import schedule
from holdfast.adapters.sim.wear import wearing
from holdfast.adapters.sim.world import Observer, World
from holdfast.decisions.job_resume import ResumePolicy
from holdfast.engine.job_reconciler import JobPorts, JobReconciler
from holdfast.engine.node_reconciler import NodePorts, NodeReconciler

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
MIN_PAUSE: Final = timedelta(milliseconds=1)
"""Minimum time between two rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPlatform:
    """Ports of one controller; only the world behind them survives its restart."""

    cluster: SimCluster
    provider: SimProvider
    jobs: SimJobs
    incidents: SimIncidents
    events: SimEvents
    clock: SimClock


def platform(world: World, gate: CallGate) -> SimulatedPlatform:
    """Return the ports of a controller that starts now."""
    return SimulatedPlatform(
        cluster=SimCluster(world, gate),
        provider=SimProvider(world, gate),
        jobs=SimJobs(world, gate),
        incidents=SimIncidents(world, gate),
        events=SimEvents(world, gate),
        clock=SimClock(world),
    )


class Controller:
    """The node and job reconcilers of one controller process."""

    def __init__(self, world: World, gate: CallGate) -> None:
        self._world = world
        self._gate = gate
        ports = platform(world, gate)
        scenario = world.scenario
        node_ports = NodePorts(
            cluster=ports.cluster,
            provider=ports.provider,
            incidents=ports.incidents,
            events=ports.events,
            clock=ports.clock,
        )
        job_ports = JobPorts(
            jobs=ports.jobs,
            cluster=ports.cluster,
            incidents=ports.incidents,
            events=ports.events,
            clock=ports.clock,
        )
        policy = ResumePolicy(job=scenario.job_policy, nodes=scenario.policy)
        self._loops: list[tuple[str, NodeReconciler | JobReconciler]] = [
            ("nodes", NodeReconciler(node_ports, scenario.policy)),
            ("jobs", JobReconciler(job_ports, policy)),
        ]
        if scenario.controller_faults.jobs_first:
            self._loops.reverse()
        self.wake_at = world.now
        self.is_idle = False
        """Whether its last round changed nothing and no call failed."""

        world.controller_since = world.now

    def make_round(self) -> None:
        """Run one round of both reconcilers."""
        wake_times = []
        changes, failed = self._gate.changes, self._gate.failed
        for what, loop in self._loops:
            failed_before = self._gate.failed
            wake_times.append(loop.step())
            self._world.observer.round_ended(what, is_clean=self._gate.failed == failed_before)
        self.is_idle = (self._gate.changes, self._gate.failed) == (changes, failed)
        self.wake_at = max(min(wake_times), self._world.now + MIN_PAUSE)


class Simulation:
    """A world and its controller, which is restarted whenever it is killed."""

    def __init__(self, scenario: Scenario, observer: Observer | None = None) -> None:
        self.world = World(scenario, START, observer or Observer(), wearing(scenario.wear))
        self.gate = CallGate(self.world, scenario.controller_faults, _outages(scenario))
        self._controller: Controller | None = Controller(self.world, self.gate)
        for scenario_event in scenario.scenario_events:
            self.world.after(scenario_event.at, _Due(self.world, scenario_event))

    def run(self, until: timedelta) -> None:
        """Run until the given time since the start."""
        end = self.world.start + until
        while (at := self._next_moment()) is not None and at <= end:
            self.step()
        self.world.advance(end)

    def step(self) -> bool:
        """Advance to the next event; False if there is none."""
        at = self._next_moment()
        if at is None:
            return False
        self.world.advance(at)
        schedule(self.world)
        controller = self._controller
        if controller is None:
            return True
        if self.world.has_changes and not self.world.scenario.controller_faults.misses_events:
            controller.wake_at = self.world.now
        self.world.has_changes = False
        if controller.wake_at <= self.world.now:
            try:
                controller.make_round()
            except ControllerKilled:
                self._controller = None
                self.world.observer.controller_died()
                self.world.after(
                    self.world.scenario.controller_faults.downtime, self.restart_controller
                )
        return True

    def restart_controller(self) -> None:
        """Start another controller, with the policy that the scenario has now."""
        self._controller = Controller(self.world, self.gate)

    def _next_moment(self) -> datetime | None:
        timer = self.world.next_timer()
        controller, world = self._controller, self.world
        if controller is None or (
            controller.is_idle and not world.has_changes and world.is_settled()
        ):
            return timer
        wake_at = controller.wake_at
        return wake_at if timer is None else min(timer, wake_at)


class _Due:
    """Applies a scenario event."""

    def __init__(self, world: World, scenario_event: ScenarioEvent) -> None:
        self._world, self._scenario_event = world, scenario_event

    def __call__(self) -> None:
        self._world.observer.event_applied(self._scenario_event)
        apply_event(self._world, self._scenario_event)


def _outages(scenario: Scenario) -> tuple[tuple[datetime, datetime], ...]:
    return tuple(
        (START + one.at, START + one.at + one.lasts)
        for one in scenario.scenario_events
        if isinstance(one, Outage)
    )
