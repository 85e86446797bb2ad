"""Trains with DDP on gloo, and hangs in a collective that one rank leaves out, or mismatches."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from recorder import listen
from torch._C import _distributed_c10d as native


def hang(kind: str) -> None:
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(3))
    if kind == "mismatch":
        dist.broadcast(torch.ones(3), 0)
    time.sleep(600)


def main() -> None:
    listen(native._dump_fr_trace)
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    dist.all_reduce(torch.ones(3))
    native._dump_fr_trace()  # the first with a stack takes seconds, on a busy machine too many
    for step in range(39):
        dist.all_reduce(torch.ones(3))
        with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a", encoding="utf-8") as file:
            file.write(f"{step}\n")
        time.sleep(0.02)
    hang(sys.argv[1])


if __name__ == "__main__":
    main()
