"""Holdfast on a real Slurm cluster under disturbances."""

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

from slurm_fleet_at_work import REPLACE_XID, Controller, Fleet
from training_at_work import Training

from holdfast.kit.processes import descendants, send
from holdfast.model.errors import BackendError
from tests.chaos.schedules import (
    DEADLINE_S,
    Broken,
    Clock,
    Disk,
    Disturbance,
    Kind,
    Victim,
    corrupted,
)
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms
from tests.engines.slurm_machine import Machine

BOTH = (Victim.CONTROLLER, Victim.AGENT)
KINDS: Mapping[Kind, tuple[Victim, ...]] = {
    Kind.KILL: BOTH,
    Kind.STOP: BOTH,
    Kind.LONG_STOP: BOTH,
    Kind.FULL_DISK: BOTH,
    Kind.READ_ONLY: BOTH,
    Kind.CLOCK: BOTH,
    Kind.CORRUPTION: BOTH,
    Kind.NO_NETWORK: (Victim.CONTROLLER,),
}
RESTART_S = 0.2
"""As ``RestartSec`` of the units, but shorter."""

TIMEOUT_S = 60.0


class ClockedFleet(Fleet):
    """A fleet whose agents have clocks that can jump."""

    def __init__(self, slurm: SlurmCluster, folder: Path) -> None:
        super().__init__(slurm, folder)
        self.clocks = {name: Clock(folder / f"clock-{name}") for name in self.machines}

    def _agent(self, machine: Machine) -> Sequence[str | Path]:
        clock = self.clocks[machine.name].environment
        env, *rest = super()._agent(machine)
        return [env, *(f"{key}={value}" for key, value in clock.items()), *rest]


class SlurmUnderChaos:
    """A ``Subject``: four nodes, two of them with a job that runs until ``finish``."""

    kinds = KINDS

    def __init__(self, programs: SlurmPrograms, folder: Path) -> None:
        self._slurm = SlurmCluster(programs, settings={"SuspendTimeout": "1"})
        self._folder = folder
        self._clock = Clock(folder / "clock-controller")
        self._disks: dict[Victim, Disk] = {}

    def __enter__(self) -> "SlurmUnderChaos":
        self._slurm.__enter__()
        self._disks = {
            Victim.CONTROLLER: Disk(self._folder / "state"),
            Victim.AGENT: Disk(self._folder / "reports"),
        }
        self._fleet = ClockedFleet(self._slurm, self._folder)
        self._fleet.shared.rmdir()
        self._fleet.shared = self._folder / "reports"
        self._fleet.start_agents()
        self._controller = self._start(wait=False)
        self._until("all nodes are in service", self._are_schedulable)
        self._job = Training(self._fleet, steps=10, holds=True)
        self._job.until_step(5)
        self._nodes = self._job.nodes()
        self._fleet.until(lambda: self._job.memory.record.phase == "running")
        return self

    def __exit__(self, *_: object) -> None:
        self._fleet.close()
        self._slurm.__exit__(None, None, None)
        for disk in self._disks.values():
            disk.close()

    def apply(self, one: Disturbance) -> None:
        with self._disturbed(one):
            time.sleep(one.seconds)
        if self._controller.process.poll() is not None:  # as systemd does
            time.sleep(RESTART_S)
            self._controller = self._start(wait=False)
        for machine in self._fleet.machines.values():
            if not self._agent_pids(machine):
                machine.start("agent", self._fleet._agent(machine))

    def check(self) -> None:
        self._until("agents and controller are at work", self._is_at_work)
        # The controller may not have got as far as its own check of a damaged file.
        self._until("the state reads clean", self._reads_clean)
        if self._fleet.orders or self._fleet.incidents:
            raise Broken(f"a repair: {self._fleet.orders} {self._fleet.incidents}")
        if self._job.state != "RUNNING" or self._job.nodes() != self._nodes:
            raise Broken(f"the job is {self._job.state} on {self._job.nodes()}")
        # A node is closed while only its agent is silent: its jobs go on.
        self._until("no healthy node is closed", self._are_open)

    def finish(self) -> None:
        bad = self._nodes[0]
        self._fleet.machines[bad].log(REPLACE_XID)
        self._until("a real fault is repaired", lambda: ["replace", bad] in self._fleet.orders)
        self._until("the job runs elsewhere", lambda: len(self._job.begun(1)) == 2)
        if bad in self._job.nodes():
            raise Broken(f"the job is on the broken {bad}")
        self._job.let_end()
        self._job.until_done()

    def _start(self, *, wait: bool) -> Controller:
        kept = dict(os.environ)
        os.environ.update(self._clock.environment)
        try:
            return self._fleet.control(
                nodes=f'heartbeat_timeout = "{DEADLINE_S:g}s"',
                provider=self._fleet.by_command(),
                wait=wait,
            )
        finally:
            os.environ.clear()
            os.environ.update(kept)

    def _agent_pids(self, machine: Machine) -> list[int]:
        return descendants(machine._plugs["agent"].pid)

    def _pids(self, one: Disturbance) -> list[int]:
        if one.victim is Victim.CONTROLLER:
            return [self._controller.process.pid]
        return self._agent_pids(self._machine(one))

    def _machine(self, one: Disturbance) -> Machine:
        machines = [*self._fleet.machines.values()]
        return machines[one.number % len(machines)]

    @contextmanager
    def _disturbed(self, one: Disturbance) -> Iterator[None]:
        disk = self._disks[one.victim]
        match one.kind:
            case Kind.KILL:
                self._signal(one, signal.SIGKILL)
                yield
            case Kind.STOP | Kind.LONG_STOP:
                pids = self._signal(one, signal.SIGSTOP)
                yield
                for pid in pids:
                    send(pid, signal.SIGCONT)
            case Kind.FULL_DISK:
                disk.fill()
                yield
                disk.empty()
            case Kind.READ_ONLY:
                if one.victim is Victim.CONTROLLER:  # no file may be open for writing
                    self._signal(one, signal.SIGKILL)
                disk.remount("ro")
                if one.victim is Victim.CONTROLLER:
                    self._controller = self._start(wait=False)
                yield
                disk.remount("rw")
            case Kind.CLOCK:
                clock = (
                    self._clock
                    if one.victim is Victim.CONTROLLER
                    else self._fleet.clocks[self._machine(one).name]
                )
                clock.set(one.jump_s)
                yield
                clock.set(0)
            case Kind.CORRUPTION:
                self._corrupt(one)
                yield
            case Kind.NO_NETWORK:
                self._signal(one, signal.SIGKILL)
                alone = self._without_network()
                yield
                alone.kill()
                alone.wait()

    def _signal(self, one: Disturbance, number: signal.Signals) -> list[int]:
        pids = self._pids(one)
        for pid in pids:
            send(pid, number)
        if one.victim is Victim.CONTROLLER and number is signal.SIGKILL:
            self._controller.process.wait()
        return pids

    def _without_network(self) -> subprocess.Popen[bytes]:
        """A controller in a network namespace without any interface."""
        config = self._controller.folder / "controller.toml"
        command = [
            "unshare",
            "--net",
            "holdfast",
            "controller",
            "--config",
            config,
            "--listen",
            "0",
        ]
        environment = {**os.environ, "PATH": self._slurm.environment["PATH"]}
        with (self._folder / "alone").open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def _corrupt(self, one: Disturbance) -> None:
        """Damage the state of a controller that is down, or a report, as a broken disk does."""
        if one.victim is Victim.CONTROLLER:
            self._signal(one, signal.SIGKILL)
            path = self._fleet.state_dir / "state.db"
        else:
            path = self._fleet.shared / f"{self._machine(one).name}.json"
        path.write_bytes(corrupted(path.read_bytes(), Random(one.number)))

    def _are_schedulable(self) -> bool:
        return all(self._fleet.phase(name) == "schedulable" for name in self._fleet.machines)

    def _are_open(self) -> bool:
        states = (self._slurm.state(name) for name in self._fleet.machines)
        return not any(one & {"FAIL", "DRAIN", "DOWN"} for one in states)

    def _is_at_work(self) -> bool:
        """Whether the controller has taken all nodes into service, and all agents report."""
        if self._controller.process.poll() is not None:
            self._controller = self._start(wait=False)
            return False
        now = time.time()
        for name in self._fleet.machines:
            report = self._fleet.shared / f"{name}.json"
            if not report.exists() or abs(now - report.stat().st_mtime) > 2:
                return False
        if not self._are_schedulable():
            return False
        try:
            return self._job.memory.record.phase == "running"
        except (KeyError, BackendError):
            return False

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            if time.monotonic() > deadline:
                phases = {name: self._fleet.phase(name) for name in self._fleet.machines}
                log = self._controller.log[-2000:]
                raise Broken(f"not within {TIMEOUT_S:g} s: {what}; {phases}\n{log}")
            time.sleep(0.1)

    def _reads_clean(self) -> bool:
        path = self._fleet.state_dir / "state.db"
        try:
            with closing(sqlite3.connect(path)) as database:
                (found,) = database.execute("PRAGMA quick_check").fetchone()
            with closing(self._fleet.store()) as store:
                memory = store.read()
        except (sqlite3.Error, BackendError):
            return False
        return found == "ok" and not memory.unreadable and not memory.unreadable_jobs
