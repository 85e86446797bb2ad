"""``holdfast run`` under disturbances.

SIGKILL of ``holdfast run`` itself is not among them: it ends its job, as that of any launcher does.
Nor is a read-only remount: its files are always open for writing. Nor is a damaged ``state.db``: it
is open as long as the job runs, and is checked when it is opened. ``on_cluster`` has all three: a
cluster outlives its processes. Its network is the loopback device of a namespace of its own; its
ranks talk over connections that stay open.

An agent that stops for longer than ``heartbeat_timeout`` makes a lost node, which is replaced, so
only ``holdfast run`` itself stops for so long.
"""

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from local_run import LocalRun

from holdfast.adapters.local.faults import write_kernel_line, xid_line
from holdfast.kit.processes import send
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
from tests.chaos.training import undisturbed

BOTH = (Victim.CONTROLLER, Victim.AGENT)
KINDS: Mapping[Kind, tuple[Victim, ...]] = {
    Kind.KILL: (Victim.AGENT,),
    Kind.STOP: BOTH,
    Kind.LONG_STOP: (Victim.CONTROLLER,),
    Kind.FULL_DISK: (Victim.CONTROLLER,),
    Kind.CLOCK: (Victim.CONTROLLER,),  # of the machine: it has one
    Kind.CORRUPTION: (Victim.AGENT, Victim.CHECKPOINT),
    Kind.NO_NETWORK: (Victim.CONTROLLER,),  # of the machine: it has one
}
OWN_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
TIMEOUT_S = 60.0
RETRIES = "1000"
"""More restarts than a job needs."""

TRACKER = "latest_checkpointed_iteration.txt"
"""Name of the file that names the newest complete checkpoint."""

BEFORE_WEIGHTS = b"data.pkl\x80\x02"
"""Name of the record and start of the pickle in a file; an opcode and the number follow."""

TRAINING = Path(__file__).with_name("training.py")


def check_overlap(end: Path) -> None:
    """Check that no two attempts ran at the same time, given the file that ends the job.

    Raises:
        Broken: they did.

    """
    if end.with_name("overlap").exists():
        raise Broken("two attempts of the job ran at the same time")


def check_weights(end: Path) -> None:
    """Check that an ended job has resumed, and has the weights of an undisturbed one.

    Raises:
        Broken: its last attempt began without a checkpoint, or it has other weights.

    """
    results = [end.with_name(f"result-{rank}").read_text("ascii").split() for rank in (0, 1)]
    steps, _, began = map(int, results[0])
    if not began:
        raise Broken("the last attempt began without a checkpoint")
    wanted = [[str(steps), str(weights), str(began)] for weights in undisturbed(steps)]
    if results != wanted:
        raise Broken(f"steps, weights and first steps are {results}, undisturbed {wanted}")


def corrupt_newest(checkpoints: Path, random: Random) -> None:
    """Damage a file of the newest complete checkpoint, unless it is the only one.

    Half of the time it is a bit of the weights, which only a checksum shows.
    """
    newest, *others = sorted(checkpoints.glob("iter_*"), reverse=True) or [checkpoints]
    tracker = checkpoints / TRACKER
    if tracker.exists() and int(tracker.read_text("ascii")) < int(newest.name[-7:]):
        newest, *others = others  # its save has not ended
    if others:
        damaged = random.choice(sorted(newest.rglob("*.pt")))
        content = bytearray(damaged.read_bytes())
        if random.random() < 0.5 and BEFORE_WEIGHTS in content:  # it may be damaged already
            content[content.index(BEFORE_WEIGHTS) + len(BEFORE_WEIGHTS) + 1] ^= 1
        else:
            content = bytearray(corrupted(content, random))
        damaged.write_bytes(content)


class LocalUnderChaos:
    """A ``Subject``: two nodes and a spare, with a job that runs until ``finish``."""

    kinds = KINDS

    def __init__(self, folder: Path) -> None:
        self._end = folder / "end"
        self._checkpoints = folder / "checkpoints"
        self._clock = Clock(folder / "clock")
        self._disk = Disk(folder / "home")
        self._run = LocalRun(folder / "home")
        self._run.environment |= self._clock.environment
        self._run.prefix = OWN_NETWORK

    def __enter__(self) -> "LocalUnderChaos":
        options = (
            *("--nodes", "2", "--spares", "1", "--hang-timeout", f"{DEADLINE_S:g}s"),
            *("--checkpoint-dir", str(self._checkpoints), "--max-app-retries", RETRIES),
        )
        command = (sys.executable, str(TRAINING), str(self._end))
        self._run.start(*options, "--", *command)
        self._run.wait_for_attempt(1)
        self._run.wait_for_spare()
        self._nodes = self._run.record().placement
        return self

    def __exit__(self, *_: object) -> None:
        self._run.stop()
        self._run.wait_for_nothing_left()
        self._disk.close()

    def apply(self, one: Disturbance) -> None:
        with self._disturbed(one):
            time.sleep(one.seconds)

    def check(self) -> None:
        self._until("the job and all nodes are at work", self._is_at_work)
        check_overlap(self._end)
        with closing(sqlite3.connect(self._run.dir.state)) as database:
            (found,) = database.execute("PRAGMA quick_check").fetchone()
        with closing(self._run.store()) as store:
            incidents = store.list_incidents()
        if found != "ok":
            raise Broken(f"the state: {found}")
        record = self._run.record()
        if repairs := [one for one in incidents if one.node]:
            raise Broken(f"a repair: {repairs}")
        if record.attempt != 1 or record.placement != self._nodes:
            ends = [self._run.dir.log(1, rank).read_text()[-500:] for rank in (0, 1)]
            raise Broken(f"the job was restarted: {record}; its ranks wrote {ends}")

    def finish(self) -> None:
        self._until("a checkpoint", (self._checkpoints / TRACKER).exists)
        corrupt_newest(self._checkpoints, Random(0))
        bad = self._run.dir.node(self._nodes[0])
        line = xid_line(74, "0000:b9:00", "some text")
        write_kernel_line(bad, line, now=datetime.now(UTC), since_boot=timedelta(seconds=100))
        self._until("another attempt", lambda: self._run.record().attempt > 1)
        self._end.touch()
        code, output = self._run.finish()
        if code:
            raise Broken(f"the job ended with {code}: {output[-1000:]}")
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
            case Kind.CLOCK:
                self._clock.set(one.jump_s)
                yield
                self._clock.set(0)
            case Kind.CORRUPTION:
                if one.victim is Victim.CHECKPOINT:
                    corrupt_newest(self._checkpoints, Random(one.number))
                else:
                    report = self._run.dir.node(self._node(one)).report
                    report.write_bytes(corrupted(report.read_bytes(), Random(one.number)))
                yield
            case Kind.NO_NETWORK:
                self._set_loopback("down")
                yield
                self._set_loopback("up")
            case _:
                raise ValueError(one.kind)

    def _set_loopback(self, state: str) -> None:
        assert self._run.process is not None
        network = f"--net=/proc/{self._run.process.pid}/ns/net"
        subprocess.run(["nsenter", network, "ip", "link", "set", "lo", state], check=True)

    def _node(self, one: Disturbance) -> str:
        return self._nodes[one.number % len(self._nodes)]

    def _signal(self, one: Disturbance, number: signal.Signals) -> list[int]:
        if one.victim is Victim.CONTROLLER:
            assert self._run.process is not None
            pids = [self._run.process.pid]
        else:
            pids = [pid for role, pid in self._run.pids(self._node(one)).items() if role == "agent"]
        for pid in pids:
            send(pid, number)
        return pids

    def _is_at_work(self) -> bool:
        record = self._run.record()
        with closing(self._run.store()) as store:
            nodes = store.nodes()
        agents = ["agent" in self._run.pids(name) for name in nodes]
        is_up = all(node[2].phase == "schedulable" for node in nodes.values())
        return record is not None and record.phase == "running" and is_up and all(agents)

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            process = self._run.process
            if process is None or process.poll() is not None:
                output = process.stdout.read() if process is not None and process.stdout else ""
                raise Broken(f"holdfast run ended: {output[-2000:]}")
            if time.monotonic() > deadline:
                raise Broken(f"not within {TIMEOUT_S:g} s: {what}; {self._run.record()}")
            time.sleep(0.1)
