"""Dumps the flight recorder of gloo in two desynchronised states, into the given folders."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as recorder


def dump(folder: str) -> None:
    path = Path(folder) / f"rank_{rank}"
    path.write_bytes(recorder._dump_fr_trace())


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
