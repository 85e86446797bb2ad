"""Trains with DDP on gloo, where one rank may take longer for its own part of a step."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

_WARM_UP = 20
"""Steps before a rank becomes slow."""


def main(folder: Path, slow: int, sleep_s: float, slow_sleep_s: float, burn_s: float) -> None:
    """Train until the process is killed.

    Args:
        folder: gets the process of each rank once it has warmed up.
        slow: rank that sleeps for ``slow_sleep_s`` in each step, in place of ``sleep_s``.
        sleep_s: as of a rank that waits for its accelerator.
        slow_sleep_s: see ``slow``.
        burn_s: CPU time of each rank in each step.

    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        own_part(slow_sleep_s if rank == slow and step > _WARM_UP else sleep_s, burn_s)
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


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:]))
