"""DeepSpeed's getting started, on the CPU."""

import argparse
import os

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1, help="from DeepSpeed's launcher")
parser.parse_args()
model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), 0.1),
    config={"train_micro_batch_size_per_gpu": 8},
)
for _ in range(4):
    loss = torch.nn.functional.mse_loss(engine(torch.randn(8, 4)), torch.randn(8, 1))
    engine.backward(loss)
    engine.step()
rank, world = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
print(f"trained rank {rank} of {world}", flush=True)
torch.distributed.destroy_process_group()
os._exit(0)  # Python's own exit takes a second to destroy what was imported
