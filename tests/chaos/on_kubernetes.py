"""Holdfast on a real control plane under disturbances.

Agents and controllers are real, kubelets are played. The controller has no files, so only those of
agents are filled, remounted and damaged. All their requests pass a proxy, which loses some of them
and of the answers while it disturbs.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import Any

from controlled import install
from gangs import Indexed
from machines import REPLACE_XID, Controller, Fleet, Machine, a_fleet
from real_cluster import connected
from unreliable_proxy import unreliable_proxy

from holdfast.kit.serial import parse_value
from holdfast.model.errors import BackendError
from holdfast.model.jobs import JobRecord
from holdfast.model.names import JOB_RECORD, RECORD
from holdfast.model.nodes import NodeRecord
from tests.chaos.control_plane import CONTROL_PLANE, disturbed
from tests.chaos.schedules import Broken, Clock, Disk, Disturbance, Kind, Victim, corrupted
from tests.engines.api_connection import Refused
from tests.engines.control_plane import PROGRAMS, ControlPlane

BOTH = (Victim.CONTROLLER, Victim.AGENT)
KINDS: Mapping[Kind, tuple[Victim, ...]] = {
    Kind.KILL: (*BOTH, *CONTROL_PLANE),
    Kind.STOP: (*BOTH, *CONTROL_PLANE),
    Kind.LONG_STOP: CONTROL_PLANE,
    Kind.FULL_DISK: (Victim.AGENT, Victim.ETCD),
    Kind.READ_ONLY: (Victim.AGENT,),
    Kind.CLOCK: BOTH,
    Kind.CORRUPTION: (Victim.AGENT,),
    Kind.NO_NETWORK: BOTH,
    Kind.SLOW: (Victim.ETCD,),
    Kind.UNRELIABLE: (Victim.API_SERVER,),
}
NAMES = ("node-1", "node-2", "node-3", "node-4")
NEEDED = (*PROGRAMS, "kubectl", "helm")
"""Programs of ``tools/control_plane.py``."""

SETTINGS = '[nodes]\nmax_unavailable = 1\nprovider_retry = "1s"\ndrain_timeout = "10s"\n'
SETTLING_S = 1.0
"""Time in which a repair begins that a disturbance has caused: agents report every 0.1 s."""

FRESH_S = 2.0
"""Age of a heartbeat, every 0.1 s, of an agent at work."""

TIMEOUT_S = 90.0
"""More than on other platforms: the control plane, too, restarts on a busy machine."""


class ChaosFleet(Fleet):
    """A fleet whose agents have clocks that can jump, and small disks."""

    def __post_init__(self) -> None:
        self.clocks: dict[str, Clock] = {}
        self.disks: dict[str, Disk] = {}
        self._served = ExitStack()
        plane = self.cluster.plane
        self.proxy = self._served.enter_context(unreliable_proxy(plane, self.folder, seed=0))
        super().__post_init__()

    @property
    def server(self) -> str:
        return self.proxy.url

    def _kubeconfig(self, config: str) -> Path:
        return self.proxy.before(super()._kubeconfig(config))

    def _boot(self, machine: Machine, boot_id: str) -> None:
        if machine.name not in self.clocks:
            self.clocks[machine.name] = Clock(machine.folder / "clock")
            self.disks[machine.name] = Disk(machine.folder / "run")
        with environment(self.clocks[machine.name]):
            super()._boot(machine, boot_id)

    def tell(self) -> None:
        """Print nothing: a broken law says what was seen."""

    def close(self) -> None:
        super().close()
        self._served.close()
        for disk in self.disks.values():
            disk.close()


class KubernetesUnderChaos:
    """A ``Subject``: four nodes, two of them with an indexed Job that runs until ``finish``."""

    kinds = KINDS

    def __init__(self, binaries: Mapping[str, Path], folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self._clock = Clock(folder / "clock-controller")
        self._stack = ExitStack()

    def __enter__(self) -> "KubernetesUnderChaos":
        with ExitStack() as stack:
            self._plane = stack.enter_context(ControlPlane(self._binaries))
            cluster = stack.enter_context(connected(self._plane, self._binaries))
            install(cluster)
            self._fleet = stack.enter_context(a_fleet(cluster, self._folder, kind=ChaosFleet))
            self._fleet.start(*NAMES)
            self._controller = self._start()
            self._fleet.until_schedulable(*NAMES)
            self._job = Indexed(cluster, self._fleet.api, name="llama")
            self._job.submit()
            self._job.until_running(1)
            self._nodes = sorted(self._job.nodes)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def apply(self, one: Disturbance) -> None:
        with self._disturbed(one):
            time.sleep(one.seconds)
        self._restart_what_ended()

    def check(self) -> None:
        self._until("agents and controller are at work", self._is_at_work)
        time.sleep(SETTLING_S)
        if self._fleet.orders or self._fleet.incidents:
            raise Broken(f"a repair: {self._fleet.orders} {self._fleet.incidents}")
        record = self._job.record
        if record["attempt"] != 1 or sorted(self._job.nodes) != self._nodes:
            raise Broken(f"the job was restarted: {record}, on {self._job.nodes}")
        self._until("the state reads clean", self._reads_clean)

    def finish(self) -> None:
        bad = self._nodes[0]
        self._fleet.machines[bad].log(REPLACE_XID)
        self._until("a real fault is repaired", lambda: self._ordered(bad))
        self._until("the job runs elsewhere", self._runs_again)
        if bad in self._job.nodes:
            raise Broken(f"the job is on the broken {bad}")
        repaired = {one.node for one in self._fleet.incidents}
        if repaired != {bad}:
            raise Broken(f"repairs of {repaired}, although only {bad} is broken")
        for pod in self._job.running:
            self._fleet.cluster.nodes.finish(pod)
        self._until("the job completes", lambda: "Complete" in self._job.conditions)

    def _start(self) -> Controller:
        return self._fleet.control(settings=SETTINGS, environment=self._clock.environment)

    def _ordered(self, node: str) -> bool:
        return ("replace", node) in [(one["action"], one["node"]) for one in self._fleet.orders]

    def _runs_again(self) -> bool:
        record = self._job.record
        return record["phase"] == "running" and record["attempt"] == 2 and len(self._job.nodes) == 2

    def _restart_what_ended(self) -> None:
        """Do what a Deployment and a DaemonSet do."""
        if self._controller.process.poll() is not None:
            self._controller = self._start()
        for name, machine in list(self._fleet.machines.items()):
            if machine.agent is None or machine.agent.poll() is not None:
                self._fleet.start_agent(name)

    def _machine(self, one: Disturbance) -> Machine:
        return self._fleet.machines[NAMES[one.number % len(NAMES)]]

    def _process(self, one: Disturbance) -> Popen[bytes]:
        if one.victim is Victim.CONTROLLER:
            return self._controller.process
        agent = self._machine(one).agent
        assert agent is not None
        return agent

    def _disturbed(self, one: Disturbance) -> AbstractContextManager[None]:
        if one.victim in CONTROL_PLANE:
            return disturbed(self._plane, self._fleet.proxy, one)
        return self._holdfast_disturbed(one)

    @contextmanager
    def _holdfast_disturbed(self, one: Disturbance) -> Iterator[None]:
        disk = self._fleet.disks[self._machine(one).name]
        match one.kind:
            case Kind.KILL:
                self._kill(one)
                yield
            case Kind.STOP:
                pid = self._process(one).pid
                os.kill(pid, signal.SIGSTOP)
                yield
                os.kill(pid, signal.SIGCONT)
            case Kind.FULL_DISK:
                disk.fill()
                yield
                disk.empty()
            case Kind.READ_ONLY:
                disk.remount("ro")
                yield
                disk.remount("rw")
            case Kind.CLOCK:
                clock = self._clock
                if one.victim is Victim.AGENT:
                    clock = self._fleet.clocks[self._machine(one).name]
                clock.set(one.jump_s)
                yield
                clock.set(0)
            case Kind.CORRUPTION:
                self._kill(one)
                self._corrupt(self._machine(one), one.number)
                yield
            case Kind.NO_NETWORK:
                with self._without_network(one):
                    yield

    def _kill(self, one: Disturbance) -> None:
        process = self._process(one)
        process.kill()
        process.wait()

    def _corrupt(self, machine: Machine, number: int) -> None:
        """Damage a file of an agent that is down: its report, or where it was in its logs."""
        files = sorted(path for path in (machine.folder / "run").rglob("*.json"))
        path = files[number // len(NAMES) % len(files)]
        path.write_bytes(corrupted(path.read_bytes(), Random(number)))

    @contextmanager
    def _without_network(self, one: Disturbance) -> Iterator[None]:
        """The same process, in a network namespace without any interface."""
        self._kill(one)
        clock = self._clock
        known: dict[str, str] = {}
        if one.victim is Victim.AGENT:
            name = self._machine(one).name
            clock, known = self._fleet.clocks[name], {"NODE_NAME": name}
        command: Any = self._process(one).args
        with (self._folder / "alone").open("ab") as output:
            alone = Popen(
                ["unshare", "--net", *command],
                stdout=output,
                stderr=output,
                env={**os.environ, **clock.environment, **known},
            )
        try:
            yield
        finally:
            alone.kill()
            alone.wait()

    def _is_at_work(self) -> bool:
        """Whether the controller has all nodes in service, and all agents have heartbeats."""
        self._restart_what_ended()
        now = time.time()
        for name, machine in list(self._fleet.machines.items()):
            heartbeat = machine.folder / "run" / "heartbeat"
            if not heartbeat.exists() or abs(now - heartbeat.stat().st_mtime) > FRESH_S:
                return False
            if self._fleet.phase(name) != "schedulable" or self._fleet.is_marked(name):
                return False
        return self._job.phase == "running"

    def _reads_clean(self) -> bool:
        try:
            for name in self._fleet.machines:
                parse_value(NodeRecord, self._fleet.annotation(name, RECORD) or "")
            parse_value(JobRecord, self._job.job["metadata"]["annotations"][JOB_RECORD])
        except ValueError:
            return False
        return True

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                if is_so():
                    return
            except (OSError, BackendError, Refused):
                pass  # the API server restarts
            if time.monotonic() > deadline:
                phases = {name: self._fleet.phase(name) for name in self._fleet.machines}
                log = f"{self._controller.log[-2000:]}\n{self._controller.errors[-500:]}"
                raise Broken(f"not within {TIMEOUT_S:g} s: {what}; {phases}\n{log}")
            time.sleep(0.1)


@contextmanager
def environment(clock: Clock) -> Iterator[None]:
    """Variables of processes that are started meanwhile."""
    kept = dict(os.environ)
    os.environ.update(clock.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)
