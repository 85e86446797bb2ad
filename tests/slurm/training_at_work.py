"""Training jobs on a Slurm cluster at work, and what they tell of themselves."""

import os
import signal
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from megatron_training import expected
from slurm_fleet_at_work import Fleet

from holdfast.adapters.slurm.nodes.state import RememberedJob
from holdfast.model.jobs import JobPhase

_PROGRAM = Path(__file__).with_name("megatron_training.py")


class Training:
    """One batch job that trains on some nodes."""

    def __init__(
        self,
        fleet: Fleet,
        *options: str,
        ranks: int = 2,
        steps: int = 100,
        request: str = "auto-resume=1",
        holds: bool = False,
    ) -> None:
        """Submit it.

        Args:
            fleet: where.
            options: more options of sbatch.
            ranks: how many nodes it needs.
            steps: after how many it has completed.
            request: its Comment.
            holds: whether it does not complete before ``let_end``.

        """
        self.fleet = fleet
        self.steps = steps
        self.ranks = ranks
        self.is_watched = request != "auto-resume=0"
        self.folder = fleet.folder / f"training-{time.monotonic_ns()}"
        self.folder.mkdir()
        if holds:
            self._hold.touch()
        command = "export TRAINING_RUN=$(date +%s%N)\n"
        command += f"srun --kill-on-bad-exit=1 {sys.executable} {_PROGRAM} {self.folder} {steps}"
        self.id = fleet.slurm.submit(
            f"-N{ranks}", f"--comment={request} checkpoint={self.folder}", "--open-mode=append",
            *options, script=command,
        )  # fmt: skip

    @property
    def _hold(self) -> Path:
        return self.folder / "hold"

    def let_end(self) -> None:
        """Let it take its last step."""
        self._hold.unlink()

    @property
    def name(self) -> str:
        return f"job/{self.id}"

    @property
    def state(self) -> str:
        return self.fleet.slurm.jobs()[self.id]

    @property
    def journal(self) -> list[list[str]]:
        """Lines of its ranks, each with the number of its run, from 0, in front."""
        path = self.folder / "journal"
        text = path.read_text("utf-8") if path.exists() else ""
        lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
        runs = {run: str(number) for number, run in enumerate(sorted({line[0] for line in lines}))}
        return [[runs[line[0]], *line[1:]] for line in lines]

    @property
    def memory(self) -> RememberedJob:
        store = self.fleet.store()
        try:
            return store.read().jobs[self.id]
        finally:
            store.close()

    def nodes(self) -> list[str]:
        text = self.fleet.slurm.run("squeue", "-h", "-j", self.id, "-o", "%N").strip()
        return self.fleet.scontrol("show", "hostnames", text).split() if text else []

    def until_step(self, step: int) -> None:
        """Until every rank of the present attempt has come so far."""
        self.fleet.until(lambda: self._is_at(step))

    def _is_at(self, step: int) -> bool:
        attempts = [int(line[0]) for line in self.journal]
        last = max(attempts, default=0)
        reached = {
            line[1] for line in self.journal
            if int(line[0]) == last and line[3] != "begins" and int(line[4]) >= step
        }  # fmt: skip
        return len(reached) == self.ranks

    def until_attempt(self, count: int) -> None:
        """Until all ranks have begun in its run of that number, from 0."""
        self.fleet.until(lambda: len(self.begun(count)) == self.ranks)

    def begun(self, attempt: int) -> list[tuple[str, int]]:
        """Where ranks of an attempt began, and from which step."""
        return [
            (line[2], int(line[4])) for line in self.journal
            if int(line[0]) == attempt and line[3] == "begins"
        ]  # fmt: skip

    def end_a_rank(self) -> None:
        """SIGKILL to one of its processes, as the kernel does when memory runs out."""
        ended = (folder for folder in Path("/proc").iterdir() if folder.name.isdecimal())
        os.kill(next(int(one.name) for one in ended if self._is_rank(one)), signal.SIGKILL)

    def _is_rank(self, process: Path) -> bool:
        try:
            argv = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return argv[:1] == [sys.executable.encode()] and str(self.folder).encode() in argv

    def until_done(self) -> None:
        """Until it has completed, with the right result."""
        self.fleet.until(lambda: self.state == "COMPLETED")
        if self.is_watched:
            self.fleet.until(lambda: self.memory.record.phase is JobPhase.SUCCEEDED)
        lines = (self.folder / "results").read_text("utf-8").splitlines()
        assert sorted(lines) == [
            f"{rank} {expected(self.steps, rank)}" for rank in range(self.ranks)
        ]
        self.check_laws()

    def check_laws(self) -> None:
        """No two attempts at once, no credential revoked."""
        at: dict[int, list[float]] = defaultdict(list)
        for line in self.journal:
            if line[3] != "begins":
                at[int(line[0])].append(float(line[3]))
        spans = [(min(times), max(times)) for _, times in sorted(at.items())]
        for before, after in pairwise(spans):
            assert before[1] <= after[0], f"two attempts at once: {spans}"
        assert "revoked" not in self.fleet.slurm.log(lines=100_000)
