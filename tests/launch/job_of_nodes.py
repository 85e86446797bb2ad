"""A job of several launchers, as processes of this machine."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launch.launched import LIMIT_S, launcher_of, none_runs, numbers_in, start, wait_for

from tests.engines.ports import free_port

KEY = "0123456789abcdef"
LEASE = "1s"
LASTING = "1m"
"""A lease with which no launcher is lost, however busy the machine is. Not where one leaves or is
lost: at the end, the coordinator waits for it for three leases."""

TRAIN = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
number, rank = os.environ["HOLDFAST_LAUNCH_ROUND"], os.environ["RANK"]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def note(name, pid):
    (folder / f".{name}.{number}.{rank}").write_text(f"{pid}\\n", encoding="utf-8")
    os.rename(folder / f".{name}.{number}.{rank}", folder / f"{name}.{number}.{rank}")
for path in folder.glob("rank.*"):
    if path.name.split(".")[1] != number:
        try:
            state = pathlib.Path("/proc", path.read_text().strip(), "stat").read_text()
        except OSError:
            continue
        if state.rpartition(")")[2].split()[0] not in "ZX":
            note("overlap", path.read_text().strip())
note("rank", os.getpid())
note("world", os.environ["WORLD_SIZE"])
while not (folder / "finish").exists():
    for path in folder.glob(f"exit.{number}.{rank}"):
        sys.exit(int(path.read_text()))
    time.sleep(0.01)
"""


class Job:
    """Launchers of one job; each has two ranks."""

    def __init__(self, folder: Path, nnodes: str) -> None:
        self.folder = folder
        self.script = folder / "train.py"
        self.script.write_text(TRAIN, encoding="utf-8")
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.nnodes = nnodes
        self.lease = LEASE
        self.variables: dict[str, str] = {}
        self.guards: list[subprocess.Popen[str]] = []

    def start(self, *options: str, key: str = KEY) -> subprocess.Popen[str]:
        meeting = ("--nnodes", self.nnodes, "--rdzv-endpoint", self.endpoint)
        times = (
            "--lease-timeout",
            self.lease,
            "--shutdown-timeout",
            "200ms",
            "--join-timeout",
            "30s",
        )
        arguments = (*meeting, *times, "--nproc-per-node", "2", *options, self.script, self.folder)
        started = start(*arguments, HOLDFAST_LAUNCH_KEY=key, **self.variables)
        self.guards.append(started)
        return started

    def start_all(self, count: int) -> list[subprocess.Popen[str]]:
        """Start launchers; the first is the coordinator, and node ranks follow the order."""
        return [self.start("--node-rank", str(rank)) for rank in range(count)]

    def ranks(self, number: int) -> list[int]:
        return numbers_in(self.folder, f"rank.{number}.*")

    def await_round(self, number: int, ranks: int = 4) -> None:
        wait_for(lambda: len(self.ranks(number)) == ranks, f"round {number}")
        assert numbers_in(self.folder, "overlap.*") == []

    def exit_rank(self, number: int, rank: int, code: int) -> None:
        written = self.folder / f".exit.{number}.{rank}"
        written.write_text(str(code), encoding="utf-8")
        written.rename(self.folder / f"exit.{number}.{rank}")  # a rank may read it at once

    def finish(self) -> None:
        (self.folder / "finish").touch()

    def node_of(self, rank_pid: int) -> subprocess.Popen[str]:
        """The guard above a rank."""
        parent = int(Path(f"/proc/{rank_pid}/stat").read_text().rpartition(")")[2].split()[1])
        above = {launcher_of(one.pid): one for one in self.guards if one.poll() is None}
        return above[parent]


@contextmanager
def running_job(folder: Path, nnodes: str) -> Iterator[Job]:
    """A job, none of whose processes is left afterwards."""
    made = Job(folder, nnodes)
    yield made
    for guard in made.guards:
        if guard.poll() is None:
            guard.kill()
        guard.communicate()
    wait_for(lambda: none_runs(numbers_in(folder, "rank.*")), "the end of all ranks")


def ends(guards: list[subprocess.Popen[str]]) -> list[int]:
    for guard in guards:
        guard.communicate(timeout=LIMIT_S)
    return [guard.returncode for guard in guards]
