"""Training loop of both trainers: resume, step, save, report."""

import ctypes
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

from holdfast.apps.demo.checkpoints import (
    DemoCheckpoint,
    DemoCheckpoints,
    storage_error,
    write_durably,
)
from holdfast.apps.demo.options import Options, RankEnvironment
from holdfast.apps.demo.replica import Replica
from holdfast.model.errors import ConfigError, HoldfastError

_STEP_BYTES = 8

_MALLOC_LIMITS = ((-1, 256 * 2**20), (-3, 32 * 2**20))
"""Parameters of ``mallopt``: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, in bytes."""


class Leader:
    """Tasks of rank 0 besides training: it reads and writes all files of the run."""

    def __init__(self, options: Options, environment: RankEnvironment, run: str) -> None:
        self._options = options
        self._environment = environment
        self._directory = DemoCheckpoints(options.checkpoint_dir, run)

    def resume_point(self) -> DemoCheckpoint:
        """Return the newest valid checkpoint; step 0 without a state for a fresh start."""
        newest = self._directory.newest(_warn)
        step = newest.step if newest else 0
        if step > self._options.steps:
            raise ConfigError(
                f"the newest checkpoint in {self._options.checkpoint_dir} is of step {step}, "
                f"beyond --steps {self._options.steps}; choose another directory or raise --steps"
            )
        _print_line(
            f"attempt {self._environment.attempt}: "
            + (f"resumed at step {step}" if newest else "started at step 0")
            + f" of {self._options.steps}, world size {self._environment.world_size}"
        )
        self._report(step)
        return newest or DemoCheckpoint(0, b"")

    def after_step(self, done: int, loss: float, replica: Replica) -> None:
        """Save a checkpoint if it is due, then report progress."""
        if done % self._options.checkpoint_every == 0 or done == self._options.steps:
            self._directory.save(DemoCheckpoint(done, replica.state()))
            _print_line(f"step {done} of {self._options.steps}: loss {loss:.3f}, checkpoint saved")
        self._report(done)

    def finish(self, replica: Replica) -> None:
        """Write ``final.json``: steps, SHA-256 of the weights, loss on held-out text."""
        final = {
            "steps": self._options.steps,
            "sha256": hashlib.sha256(replica.weights()).hexdigest(),
            "loss": replica.held_out_loss(),
        }
        write_durably(
            self._options.checkpoint_dir / "final.json", json.dumps(final).encode() + b"\n"
        )
        _print_line(
            f"finished {final['steps']} steps: held-out loss {final['loss']:.3f}, "
            f"weights {final['sha256']}"
        )

    def _report(self, step: int) -> None:
        if self._environment.progress_file is None:
            return
        try:
            with self._environment.progress_file.open("a", encoding="ascii") as file:
                file.write(f"{step}\n")
        except OSError as error:
            raise storage_error(self._environment.progress_file, error) from error


def train(replica: Replica, options: Options, environment: RankEnvironment, run: str) -> None:
    """Train from the newest checkpoint to the last step; all ranks end up with equal weights.

    Raises:
        ConfigError: the checkpoints are invalid for this run.
        PeerLost: another rank is gone.
        BackendError: a file cannot be written; ``StorageFull`` if there is no space.

    """
    leader = Leader(options, environment, run) if environment.rank == 0 else None
    start = _resume(replica, leader)
    for step in range(start, options.steps):
        pause_until = time.monotonic() + options.step_time.total_seconds()
        loss = replica.train(step)
        if leader:
            leader.after_step(step + 1, loss, replica)
        time.sleep(max(0.0, pause_until - time.monotonic()))
    if leader:
        leader.finish(replica)
    replica.broadcast(b"")  # no rank may report success before the result is stored


def run_trainer(main: Callable[[Sequence[str]], None]) -> int:
    """Run the main function of a trainer and turn its errors into messages and exit codes."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # checkpoints are atomic: nothing to clean up
    _keep_freed_memory()
    try:
        main(sys.argv[1:])
    except HoldfastError as error:
        for line in str(error).splitlines():
            _warn(line)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


def _keep_freed_memory() -> None:
    """Set malloc to keep freed memory for the next step.

    By default, glibc returns it to the kernel, and each step has 1,500 page faults: a third of the
    CPU time of a rank in NumPy.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt:
        for parameter, limit in _MALLOC_LIMITS:
            mallopt(parameter, limit)


def _resume(replica: Replica, leader: Leader | None) -> int:
    """Load the checkpoint that rank 0 has chosen on all ranks; return its step."""
    message = b""
    if leader:
        chosen = leader.resume_point()
        message = chosen.step.to_bytes(_STEP_BYTES, "big") + chosen.state
    message = replica.broadcast(message)
    step, state = int.from_bytes(message[:_STEP_BYTES], "big"), message[_STEP_BYTES:]
    if state:
        replica.restore(state)
    return step


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _warn(line: str) -> None:
    sys.stderr.write(f"rank {os.environ.get('RANK') or 0}: {line}\n")
    sys.stderr.flush()
