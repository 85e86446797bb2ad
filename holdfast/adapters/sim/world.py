"""Simulated world: its state, which survives restarts of the controller."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import TypeVar

from holdfast.adapters.sim.machine import Power, SimMachine
from holdfast.adapters.sim.scenario import (
    Defect,
    Delivery,
    Hardware,
    ProviderReply,
    Scenario,
    ScenarioEvent,
    Training,
)
from holdfast.adapters.sim.training import SIGKILL_EXIT, SimJob, SimRank, first_record, new_job
from holdfast.model.events import Event
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobPhase, JobRecord
from holdfast.model.names import NODE_NAME_PREFIX
from holdfast.model.nodes import Breaker, CheckResult, NodeRecord, NodeView, PairOutcome, Phase
from holdfast.model.requests import Request

T = TypeVar("T")


@dataclass(slots=True)
class SimNode:
    """A node, its machine and its stored state."""

    name: str
    machine: SimMachine
    record: NodeRecord
    replaces: str = ""
    request: Request | None = None
    check_id: str = ""
    check: CheckResult | None = None
    pair_id: str = ""
    pair: PairOutcome | None = None
    last_view: tuple[tuple[object, ...], NodeView] | None = field(
        default=None, compare=False, repr=False
    )
    """Last snapshot of the node, behind what it was made from."""


class Observer:
    """Callbacks for the effects of a simulation; they do nothing unless overridden."""

    def node_put(self, node: SimNode, before: NodeRecord) -> None:
        """A node's record was stored."""

    def job_put(self, job: SimJob, before: JobRecord) -> None:
        """A job's record was stored."""

    def launched(self, job: SimJob, rank: SimRank) -> None:
        """A rank was started."""

    def pair_started(self, node: SimNode, partner: SimNode) -> None:
        """A pair test was started."""

    def breaker_closed(self) -> None:
        """The controller closes the open circuit breaker."""

    def ordered(self, node: SimNode, verb: str, token: str, answer: ProviderReply) -> None:
        """The provider was called and responds with ``answer``."""

    def event_applied(self, scenario_event: ScenarioEvent) -> None:
        """A scenario event is applied."""

    def reported(self, event: Event) -> None:
        """The engine emitted an event."""

    def round_ended(self, what: str, *, is_clean: bool) -> None:
        """A round of ``nodes`` or ``jobs`` ended; it is clean if no call failed."""

    def controller_died(self) -> None:
        """The controller was killed."""


@dataclass(slots=True)
class ProviderState:
    """State of the provider."""

    tokens: set[str] = field(default_factory=set)
    """Tokens of orders that took effect."""

    calls: int = 0
    reboots: int = 0
    deliveries: int = 0
    checks: int = 0
    pairs: int = 0
    out_until: datetime | None = None
    """End of the capacity shortage; None if there is none."""

    returned: list[str] = field(default_factory=list)
    """``provider_id`` of the returned machines, oldest first."""


class World:
    """Nodes, jobs, timers and all durable state; independent of the controller."""

    def __init__(
        self,
        scenario: Scenario,
        start: datetime,
        observer: Observer,
        wear_out: Callable[["World", SimMachine], None],
    ) -> None:
        self.scenario = scenario
        self.has_scheduler = scenario.has_scheduler
        self.hardware: Hardware = scenario.hardware
        self.start = start
        self.now = start
        self.observer = observer
        self.nodes: dict[str, SimNode] = {}
        self.jobs: dict[str, SimJob] = {}
        self.incidents: dict[str, Incident] = {}
        self.breaker = Breaker()
        self.offenders: set[str] = set()
        self.owner = ProviderState()
        self.has_changes = True
        self.controller_since = start
        """Start of the current controller, which knows no earlier heartbeat."""

        self._wear_out = wear_out
        self._timers: list[tuple[datetime, int, Callable[[], None]]] = []
        self.numbers = count(1)
        self._machines = count()
        for _ in range(scenario.nodes):
            self.add_node(self.new_machine())
        for training in scenario.trainings:
            self.after(training.submitted_at, self._submitter(training))

    # time

    def after(self, delay: timedelta, act: Callable[[], None]) -> None:
        """Call ``act`` after a delay."""
        heapq.heappush(self._timers, (self.now + delay, next(self.numbers), act))

    def next_timer(self) -> datetime | None:
        """Return the time of the next timer; None if there is none."""
        return self._timers[0][0] if self._timers else None

    def advance(self, until: datetime) -> None:
        """Advance the time and call all timers that are due."""
        while self._timers and self._timers[0][0] <= until:
            at, _, act = heapq.heappop(self._timers)
            self.now = max(self.now, at)
            act()
        self.now = max(self.now, until)

    def is_settled(self) -> bool:
        """Whether all nodes and jobs are settled, so that only a timer can change them."""
        return all(
            node.record.phase is Phase.SCHEDULABLE and node.machine.is_well and node.request is None
            for node in self.nodes.values()
        ) and all(
            job.record.phase.is_final or (job.record.phase is JobPhase.RUNNING and job.is_at_work)
            for job in self.jobs.values()
        )

    # machines

    def new_machine(self, provider_id: str = "") -> SimMachine:
        """Return a new machine that is booting."""
        machine = SimMachine(
            provider_id=provider_id or f"i-{next(self.numbers):017x}",
            number=next(self._machines),
            heartbeat=self.hardware.heartbeat,
        )
        self.after(self.hardware.boot_time, self._booter(machine))
        self._wear_out(self, machine)
        return machine

    def add_node(self, machine: SimMachine, replaces: str = "") -> None:
        """Add a node for a machine."""
        name = f"{NODE_NAME_PREFIX}{machine.provider_id}"
        record = NodeRecord(phase=Phase.JOINING, phase_since=self.now)
        self.nodes[name] = SimNode(name=name, machine=machine, record=record, replaces=replaces)
        self.has_changes = True

    def break_machine(self, machine: SimMachine, defect: Defect) -> None:
        """Give a machine a defect now."""
        boot = machine.boot
        if defect.relapses:
            machine.defects.append(defect)
        if defect.crashes:
            for job, rank in self.living_ranks():
                if rank.machine is machine:
                    self.end_rank(job, rank, 134)

        def note() -> None:
            if machine.boot == boot and machine.power is Power.ON:
                machine.note(defect, self.now)
                self.has_changes = True
                if defect.lasts is not None:
                    self.after(defect.lasts, clear)

        def clear() -> None:
            if machine.boot == boot and machine.faults.pop(defect.reason, None) is not None:
                self.has_changes = True

        self.after(defect.seen_after, note)

    def cut(self, machine: SimMachine, power: Power) -> None:
        """Power off or remove a machine; its processes end."""
        for job, rank in self.living_ranks():
            if rank.machine is machine:
                rank.is_reported = False
                self.end_rank(job, rank, SIGKILL_EXIT)
        machine.cut(power)
        self.has_changes = True

    def reboot(self, machine: SimMachine) -> None:
        """Reboot a machine, as ordered."""
        if machine.power is Power.REMOVED:
            return
        self.cut(machine, Power.BOOTING)
        if nth(self.hardware.lost_reboots, self.owner.reboots, good=False):
            machine.fails_to_boot = True
        self.owner.reboots += 1
        self.after(self.hardware.reboot_time, self._booter(machine))

    def replace(self, node: SimNode) -> None:
        """Terminate a node's machine and order another."""
        old = node.machine
        if old.has_successor:
            return
        if old.power is not Power.REMOVED:
            self.cut(old, Power.REMOVED)
        delivery = nth(self.hardware.deliveries, self.owner.deliveries, good=Delivery.GOOD)
        self.owner.deliveries += 1
        if delivery is Delivery.LOST:
            return
        old.has_successor = True
        self.after(self.hardware.replace_time, lambda: self._deliver(node, old, delivery))

    def _deliver(self, node: SimNode, old: SimMachine, delivery: Delivery) -> None:
        present = {one.machine.provider_id for one in self.nodes.values()}
        old_ids = [one for one in self.owner.returned if one in self.offenders - present]
        is_offender = delivery is Delivery.OFFENDER and old_ids
        machine = self.new_machine(old_ids[-1] if is_offender else "")
        if is_offender:
            self.owner.returned.remove(machine.provider_id)
        self.owner.returned.append(old.provider_id)
        machine.fails_to_boot = delivery is Delivery.DEAD
        if self.hardware.keeps_names:
            node.machine = machine
        else:
            self.add_node(machine, replaces=node.name)
        self.has_changes = True

    def _booter(self, machine: SimMachine) -> Callable[[], None]:
        boot = machine.boot

        def boots() -> None:
            if machine.boot != boot or machine.power is not Power.BOOTING or machine.fails_to_boot:
                return
            machine.power = Power.ON
            machine.send_heartbeat(self.now)
            self.has_changes = True
            back, machine.defects = machine.defects, []
            for defect in back:
                self.after(defect.relapse_after, self._relapse(machine, defect))

        return boots

    def _relapse(self, machine: SimMachine, defect: Defect) -> Callable[[], None]:
        boot = machine.boot

        def relapse() -> None:
            if machine.boot == boot and machine.power is Power.ON:
                self.break_machine(machine, replace(defect, relapses=defect.relapses - 1))

        return relapse

    def start_check(self, node: SimNode, check_id: str) -> None:
        """Start a deep health check on a node."""
        if node.check_id == check_id or node.machine.power is not Power.ON:
            return
        node.check_id, node.check = check_id, None
        fails = nth(self.hardware.failed_checks, self.owner.checks, good=False)
        self.owner.checks += 1
        boot = node.machine.boot

        def end() -> None:
            is_same = node.check_id == check_id and node.machine.boot == boot
            if is_same and node.machine.power is Power.ON and fails is not None:
                node.check = CheckResult(passed=not fails, ended_at=self.now, detail="simulated")
                self.has_changes = True

        self.after(self.hardware.check_time, end)

    # jobs

    def _submitter(self, training: Training) -> Callable[[], None]:
        def submit() -> None:
            self.jobs[training.spec.name] = new_job(training, first_record(training, self.now))
            self.has_changes = True

        return submit

    def start_rank(self, job: SimJob, rank: int, node: SimNode) -> None:
        """Start the process of one rank if its machine is powered on."""
        machine = node.machine
        if machine.power is not Power.ON:
            return
        attempt = job.record.attempt
        process = SimRank(
            rank=rank, node=node.name, machine=machine, boot=machine.boot, attempt=attempt
        )
        job.ranks.append(process)
        self.observer.launched(job, process)
        self.has_changes = True
        present = [one for one in job.living() if one.attempt == attempt]
        if len(present) == job.training.spec.nodes:
            job.begin(self.now)
            self.await_end(job)

    def await_end(self, job: SimJob) -> None:
        """Schedule the time at which the job fails or finishes by itself."""
        end = job.next_end()
        if end is not None:
            self.after(end[0] - self.now, lambda: self._end_itself(job))

    def _end_itself(self, job: SimJob) -> None:
        end = job.next_end()
        if end is None or end[0] > self.now:
            return
        crash = end[1]
        if crash is None:
            for rank in job.living():
                rank.end(0, self.now)
        else:
            if crash in job.crashes_left:
                job.crashes_left[crash] -= 1
            job.living()[-1].end(crash.exit_code, self.now)
        job.halt(self.now)
        self.has_changes = True

    def end_rank(self, job: SimJob, rank: SimRank, exit_code: int) -> None:
        """End the process of one rank."""
        if rank.exit_code is None:
            rank.end(exit_code, self.now)
            job.halt(self.now)
            self.has_changes = True

    def living_ranks(self) -> Iterable[tuple[SimJob, SimRank]]:
        """Return all running processes, each with its job."""
        return [(job, rank) for job in self.jobs.values() for rank in job.living()]


def nth(outcomes: tuple[T, ...], number: int, *, good: T) -> T:
    """Return the outcome of order ``number``, counted from 0; ``good`` beyond the plan."""
    return outcomes[number] if number < len(outcomes) else good
