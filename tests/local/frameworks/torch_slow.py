"""DDP on gloo until it is killed; the rank ``SLOW_RANK`` sleeps in its forward pass."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEP_S = 0.02


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    is_slow = os.environ.get("SLOW_RANK") == os.environ["RANK"]
    sleep_s = STEP_S * (float(os.environ["SLOW_FACTOR"]) if is_slow else 1.0)
    model = DistributedDataParallel(torch.nn.Linear(32, 32))
    step = 0
    while True:
        time.sleep(sleep_s)
        model(torch.ones(4, 32)).sum().backward()
        step += 1
        if step == 1:
            print("training", flush=True)


if __name__ == "__main__":
    main()
