"""Trains on gloo, and hangs in the way that the first argument names: ``asleep`` with DDP.

The environment may have the rank and the step that hang: ``HANG_RANK`` and ``HANG_AT``.
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

HANG = sys.argv[1]
TIMEOUT_S = int(os.environ.get("HANG_TIMEOUT_S", "600"))
RANK, AT = int(os.environ.get("HANG_RANK", "1")), int(os.environ.get("HANG_AT", "8"))


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        if HANG == "dataloader" and os.environ["RANK"] == str(RANK) and index >= 4 * (AT + 2):
            time.sleep(600)
        return torch.zeros(8)


def falls_asleep():
    time.sleep(600)


def hang(step):
    if step != AT or HANG not in ("asleep", "mismatch"):
        return
    if HANG == "asleep" and dist.get_rank() == RANK:
        falls_asleep()
    if HANG == "mismatch":
        if dist.get_rank() == RANK:
            dist.barrier()
        else:
            dist.all_reduce(torch.ones(3))


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_S))
    model = torch.nn.Linear(8, 8)
    if HANG == "asleep":  # DDP imports 1,000 modules, and only these ranks wait in it
        model = torch.nn.parallel.DistributedDataParallel(model)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=1)
    for step, batch in enumerate(loader):
        hang(step)
        model(batch).sum().backward()
        if HANG != "asleep":
            for weight in model.parameters():
                dist.all_reduce(weight.grad)
        if dist.get_rank() == 0:
            with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a", encoding="utf-8") as file:
                file.write(f"{step}\n")
        print("pid", os.getpid(), "step", step, flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
