"""Dumps the flight recorder of gloo in two desynchronised states, into the given folders."""

import os
import pickle
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as recorder


def dump(folder: str) -> None:
    """Dump, and wait for the other rank: what is called next belongs to the next state.

    gloo records the end of a collective a moment after its caller returns.
    """
    path = Path(folder) / f"rank_{rank}"
    trace = recorder._dump_fr_trace()
    while not all(one["retired"] for one in pickle.loads(trace)["entries"][:2]):  # noqa: S301 - ours
        time.sleep(0.01)
        trace = recorder._dump_fr_trace()
    path.write_bytes(trace)
    path.with_name(f"dumped_{rank}").touch()
    while not path.with_name(f"dumped_{1 - rank}").exists():
        time.sleep(0.01)


dist.init_process_group("gloo", timeout=timedelta(minutes=5))
rank = dist.get_rank()
dist.all_reduce(torch.ones(4))
dist.all_reduce(torch.ones(4))
if rank == 0:
    waits = dist.all_reduce(torch.ones(8), async_op=True)
dump(sys.argv[1])
if rank == 1:
    waits = dist.broadcast(torch.ones(8), 0, async_op=True)
dump(sys.argv[2])
os._exit(0)
