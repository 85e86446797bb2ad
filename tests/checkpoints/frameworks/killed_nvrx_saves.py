"""Kills ranks of NVRx while they save local checkpoints; NVRx loads what Holdfast then chooses.

    python killed_nvrx_saves.py FOLDER ROUNDS KIND...

Fails if NVRx loads another iteration, other values, or cannot save the iteration that was cut off
once more. KIND is ``alone``, or ``replicated``: each rank also has the file of the other one.
Prints in how many rounds an iteration was moved away.
"""

import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import (
    LocalCheckpointManager,
)
from nvidia_resiliency_ext.checkpointing.local.replication.strategies import (
    CliqueReplicationStrategy,
)
from nvrx_state import CpuState

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.engine.checkpoint_guard import guard
from holdfast.model.checkpoints import Depth

RANKS, PARTS, ITEMS = 2, 24, 4096
LONGEST = 0.08
"""Seconds within which the ranks are killed after their first file."""

Ranks = Callable[[Path, int], LocalCheckpointManager]


def state(iteration: int, rank: int) -> CpuState:
    return CpuState(iteration, rank, PARTS, ITEMS)


def manager(folder: Path, rank: int, store: Path, *, has_replicas: bool) -> LocalCheckpointManager:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    strategy = CliqueReplicationStrategy.from_replication_params(1, RANKS) if has_replicas else None
    return LocalCheckpointManager(folder.parent, folder.name, strategy)


def save(start: Ranks, folder: Path, rank: int) -> None:
    own = start(folder, rank)
    for iteration in range(1, 1000):
        own.save(state(iteration, rank), iteration)


def resume(start: Ranks, folder: Path, rank: int, expected: int) -> None:
    """Load the iteration that is expected, and save the next one."""
    own = start(folder, rank)
    found = own.find_latest()
    assert found == max(expected, -1), (found, expected)
    if found > 0:
        loaded = loaded_shard(own, folder, rank, found)
        pairs = zip(loaded.tensors, state(found, rank).tensors, strict=True)
        assert loaded.iteration == found
        assert all(torch.equal(one, other) for one, other in pairs)
    own.save(state(found + 1, rank), found + 1)


def loaded_shard(own: LocalCheckpointManager, folder: Path, rank: int, found: int) -> CpuState:
    """Load the shard of a rank: of a replica without NVRx's transfer, which needs CUDA."""
    name = f"iter_{found:07d}_{rank}_local.pt"
    if all((folder / f"{each}/iter_{found:07d}_{each}_local.pt").exists() for each in range(RANKS)):
        return own.load()[0]
    return torch.load(next(folder.glob(f"*/{name}")), weights_only=False)


def forked(act: Callable[[int], None]) -> list[int]:
    processes = []
    for rank in range(RANKS):
        process = os.fork()
        if process == 0:
            code = 1
            try:
                act(rank)
                code = 0
            except Exception:  # noqa: BLE001 - the process ends without the clean-up of its parent
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        processes.append(process)
    return processes


def killed(folder: Path, *, has_replicas: bool) -> bool:
    """One save after another until the ranks are killed; whether that left something behind."""
    folder.mkdir(parents=True)
    stores = [folder.with_name(f"{folder.name}-store-{number}") for number in range(2)]
    start = partial(manager, store=stores[0], has_replicas=has_replicas)
    processes = forked(lambda rank: save(start, folder, rank))
    while not any(folder.rglob("*.pt")):
        time.sleep(0.001)
    time.sleep(random.uniform(0.0, LONGEST))
    for process in processes:
        os.kill(process, signal.SIGKILL)
    for process in processes:
        os.waitpid(process, 0)
    found = guard(CheckpointDirectory(folder), Depth.HASHES, quiet_since=None)
    one = found.choice.resume
    again = partial(manager, store=stores[1], has_replicas=has_replicas)
    expected = one.step if one is not None and one.step is not None else -1
    for process in forked(lambda rank: resume(again, folder, rank, expected)):
        _, status = os.waitpid(process, 0)
        assert os.waitstatus_to_exitcode(status) == 0, found.before
    return bool(found.moved)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # gloo resolves the name of the machine otherwise
    folder, rounds = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    for kind in sys.argv[3:]:
        moved = sum(
            killed(folder / f"{kind}-{number}", has_replicas=kind == "replicated")
            for number in range(rounds)
        )
        sys.stdout.write(f"{kind}: {rounds} kills, {moved} incomplete checkpoints moved away\n")


if __name__ == "__main__":
    main()
