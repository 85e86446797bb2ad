"""Trains with DDP on gloo, where one rank may take longer for its own part of a step."""

import mmap
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

_WARM_UP = 20
"""Steps before a rank becomes slow."""


def main(
    folder: Path, slow: int, sleep_s: float, slow_sleep_s: float, burn_s: float, size: int
) -> None:
    """Train until the process is killed.

    Args:
        folder: gets the process of each rank once it has warmed up.
        slow: rank that sleeps for ``slow_sleep_s`` in each step, in place of ``sleep_s``.
        sleep_s: as of a rank that waits for its accelerator.
        slow_sleep_s: see ``slow``.
        burn_s: CPU time of each rank in each step.
        size: bytes that each rank reads in each step, past the page cache, from a file
            ``storage/RANK``; 0 for none.

    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    read = reader(folder / "storage" / str(rank), size) if size else None
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        own_part(slow_sleep_s if rank == slow and step > _WARM_UP else sleep_s, burn_s)
        if read is not None:
            read()
        optimizer.zero_grad()
        model(torch.ones(8, 64)).sum().backward()
        optimizer.step()
        step += 1
        if step == _WARM_UP:
            (folder / f"rank-{rank}.new").write_text(str(os.getpid()), encoding="ascii")
            (folder / f"rank-{rank}.new").rename(folder / f"rank-{rank}")


def own_part(sleep_s: float, burn_s: float) -> None:
    """Sleep and compute."""
    time.sleep(sleep_s)
    end = time.process_time() + burn_s
    while time.process_time() < end:
        pass


def reader(path: Path, size: int) -> Callable[[], int]:
    """Return what reads a file from its storage."""
    buffer, file = mmap.mmap(-1, size), os.open(path, os.O_RDONLY | os.O_DIRECT)
    return lambda: os.preadv(file, [buffer], 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:6]), int(sys.argv[6]))
