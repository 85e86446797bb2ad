"""A cluster of ``holdfast api`` on this machine under disturbances, with a job on it.

The process that serves the API and the supervisor of the cluster are started again when they end,
as systemd does with ``holdfast api``, so they are killed, too: what is on the disk must be enough
to go on. The machines of the cluster end with the supervisor; the job then starts another attempt.

The databases are damaged, and their disk is read-only, while neither process runs: no file may be
open for writing.
"""

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from local_run import LocalRun
from served_api import Served, serving, with_keys

from holdfast.adapters.local.cluster_store import ClusterStore
from holdfast.adapters.local.faults import write_kernel_line, xid_line
from holdfast.adapters.local.layout import cluster_dir
from holdfast.kit.processes import send
from holdfast.model.errors import BackendError
from holdfast.model.jobs import JobPhase
from tests.chaos.on_local import (
    RETRIES,
    TIMEOUT_S,
    TRACKER,
    TRAINING,
    check_overlap,
    check_weights,
    corrupt_newest,
)
from tests.chaos.schedules import Broken, Clock, Disk, Disturbance, Kind, Victim, corrupted

BOTH = (Victim.CONTROLLER, Victim.API_SERVER)
KINDS: Mapping[Kind, tuple[Victim, ...]] = {
    Kind.KILL: (*BOTH, Victim.AGENT),
    Kind.STOP: (*BOTH, Victim.AGENT),
    Kind.LONG_STOP: BOTH,
    Kind.FULL_DISK: (Victim.CONTROLLER,),
    Kind.READ_ONLY: (Victim.CONTROLLER,),
    Kind.CLOCK: (Victim.CONTROLLER,),  # of the machine: it has one
    Kind.CORRUPTION: (*BOTH, Victim.CHECKPOINT),
}
NAME = "ml-cluster"
GROUP = {
    "InstanceGroupName": "workers",
    "InstanceType": "ml.p5.48xlarge",
    "InstanceCount": 3,
    "ExecutionRole": "arn:aws:iam::123456789012:role/ClusterRole",
}
JOB = "llm"

BACKUP_S = 1.0
"""Time in which a change reaches the backup; a later one may be lost with the database."""


class ClusterUnderChaos:
    """A ``Subject``: three nodes, with a job on two of them that runs until ``finish``."""

    kinds = KINDS

    def __init__(self, folder: Path) -> None:
        self._end = folder / "end"
        self._checkpoints = folder / "checkpoints"
        self._clock = Clock(folder / "clock")
        self._disk = Disk(folder / "home")
        self._run = LocalRun(folder / "home")
        self._run.dir = cluster_dir(folder / "home", NAME)
        self._run.environment |= self._clock.environment
        self._config = with_keys(folder / "api.toml")
        self._api = ExitStack()
        self._served: Served | None = None

    def __enter__(self) -> "ClusterUnderChaos":
        self._start()
        assert self._served is not None
        self._served.client().create_cluster(ClusterName=NAME, InstanceGroups=[GROUP])
        self._until("all nodes are in service", self._are_schedulable)
        options = (
            *("--cluster", NAME, "--name", JOB, "--nodes", "2", "--max-retries", RETRIES),
            *("--checkpoint-dir", str(self._checkpoints), "--max-app-retries", RETRIES),
        )
        training = (sys.executable, str(TRAINING), str(self._end))
        follower = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "run", *options, "--", *training],
            env=self._run.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._until("the job and all nodes are at work", self._is_at_work)
        follower.kill()  # it only shows the job, and keeps the database open
        follower.wait()
        self._nodes = self._node_names()
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._disk.close()

    def apply(self, one: Disturbance) -> None:
        with self._disturbed(one):
            time.sleep(one.seconds)
        if self._served is None or self._served.process.poll() is not None:
            self._start()

    def check(self) -> None:
        self._until("the job and all nodes are at work", self._is_at_work)
        check_overlap(self._end)
        for path in (self._run.dir.state, self._run.home / "api.db"):
            with closing(sqlite3.connect(path)) as database:
                (found,) = database.execute("PRAGMA quick_check").fetchone()
            if found != "ok":
                raise Broken(f"{path}: {found}")
        with closing(ClusterStore(self._run.dir.state)) as store:
            repairs = [one for one in store.list_incidents() if one.node]
        if repairs or self._node_names() != self._nodes:
            raise Broken(f"a repair: {repairs}; {self._node_names()}, were {self._nodes}")

    def finish(self) -> None:
        self._until("a checkpoint", (self._checkpoints / TRACKER).exists)
        attempt = self._record().attempt
        bad = self._run.dir.node(self._record().placement[0])
        line = xid_line(74, "0000:b9:00", "some text")
        write_kernel_line(bad, line, now=datetime.now(UTC), since_boot=timedelta(seconds=100))
        self._until("another attempt", lambda: self._record().attempt > attempt)
        self._end.touch()
        self._until("the job's end", lambda: self._record().phase.is_final)
        if self._record().phase is not JobPhase.SUCCEEDED:
            raise Broken(f"the job: {self._record()}")
        check_overlap(self._end)
        check_weights(self._end)

    @contextmanager
    def _disturbed(self, one: Disturbance) -> Iterator[None]:
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
                self._disk.fill()
                yield
                self._disk.empty()
            case Kind.READ_ONLY:
                self._kill()
                self._disk.remount("ro")
                self._try_to_start()
                yield
                self._kill()
                self._disk.remount("rw")
            case Kind.CLOCK:
                self._clock.set(one.jump_s)
                yield
                self._clock.set(0)
            case Kind.CORRUPTION:
                time.sleep(BACKUP_S)
                self._kill()
                self._corrupt(one.victim, Random(one.number))
                yield
            case _:
                raise ValueError(one.kind)

    def _corrupt(self, victim: Victim, random: Random) -> None:
        if victim is Victim.CHECKPOINT:
            corrupt_newest(self._checkpoints, random)
            return
        is_api = victim is Victim.API_SERVER
        path = self._run.home / "api.db" if is_api else self._run.dir.state
        path.write_bytes(corrupted(path.read_bytes(), random))

    def _start(self) -> None:
        """Start ``holdfast api``, which starts the supervisor of the cluster."""
        self._api.close()
        environment = {**self._clock.environment, "HOLDFAST_HOME": str(self._run.home)}
        self._served = self._api.enter_context(serving(self._config, **environment))

    def _try_to_start(self) -> None:
        """Start it where it may end at once, with a message."""
        try:
            self._start()
        except AssertionError as error:
            if "Traceback" in str(error) or "internal error" in str(error):
                raise Broken(str(error)) from error

    def _kill(self) -> None:
        """End both processes and the machines, as a power cut does."""
        self._api.close()
        self._served = None
        for pid in self._supervisors():
            send(pid, signal.SIGKILL)
        self._run.wait_for_nothing_left()

    def _supervisors(self) -> list[int]:
        found = []
        wanted = ["holdfast.apps.run.cluster_supervisor", "--dir", str(self._run.dir.path)]
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                argv = (entry / "cmdline").read_text().split("\0")
            except OSError:  # it has ended
                continue
            if all(word in argv for word in wanted):
                found.append(int(entry.name))
        return found

    def _signal(self, one: Disturbance, number: signal.Signals) -> list[int]:
        match one.victim:
            case Victim.CONTROLLER:
                pids = self._supervisors()
            case Victim.API_SERVER:
                assert self._served is not None
                pids = [self._served.process.pid]
            case _:
                name = self._nodes[one.number % len(self._nodes)]
                running = self._run.pids(name).items()
                pids = [pid for role, pid in running if role == "agent"]
        for pid in pids:
            send(pid, number)
        if one.victim is Victim.API_SERVER and number is signal.SIGKILL:
            assert self._served is not None
            self._served.process.wait()
        return pids

    def _record(self):
        with closing(ClusterStore(self._run.dir.state)) as store:
            ids = {one.name: key for key, one in store.submissions().items()}
            return store.job(ids[JOB])[1]

    def _node_names(self) -> list[str]:
        with closing(ClusterStore(self._run.dir.state)) as store:
            return sorted(store.nodes())

    def _are_schedulable(self) -> bool:
        try:
            with closing(ClusterStore(self._run.dir.state)) as store:
                nodes = store.nodes()
        except BackendError:
            return False
        return len(nodes) == GROUP["InstanceCount"] and all(
            node[2].phase == "schedulable" for node in nodes.values()
        )

    def _is_at_work(self) -> bool:
        """Whether the job runs on schedulable nodes, whose agents and ranks are there."""
        if not self._are_schedulable():
            return False
        try:
            record = self._record()
        except (BackendError, KeyError):
            return False
        roles = {name: self._run.pids(name) for name in self._node_names()}
        return (
            record.phase is JobPhase.RUNNING
            and all("agent" in found for found in roles.values())
            and all(len(roles[name]) > 1 for name in record.placement)
            and len(self._supervisors()) == 1
        )

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            if time.monotonic() > deadline:
                raise Broken(f"not within {TIMEOUT_S:g} s: {what}; {self._told()}")
            time.sleep(0.1)

    def _told(self) -> str:
        """The ends of the logs, and what the state says."""
        log = self._run.dir.path / "supervisor.log"
        said = [path.read_text()[-1500:] for path in (log,) if path.exists()]
        if self._served is not None:
            said.append(self._served.said()[-1500:])
        try:
            with closing(ClusterStore(self._run.dir.state)) as store:
                said += [f"{name}: {found}" for name, found in store.nodes().items()]
            said.append(str(self._record()))
        except (BackendError, KeyError) as error:
            said.append(repr(error))
        return "\n".join(said)
