"""PyTorch as its tutorial on torchrun has it; resumes, and dies once on demand."""

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
attempt = os.environ["HOLDFAST_ATTEMPT"]
checkpoint = Path(os.environ["HOLDFAST_CHECKPOINT_DIR"]) / "last.pt"
progress = Path(os.environ["HOLDFAST_PROGRESS_FILE"])
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
step = 0
if checkpoint.exists():
    state = torch.load(checkpoint)
    step = state["step"]
    model.load_state_dict(state["model"])
print(f"resumed at {step}", flush=True)
while step < 6:
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    step += 1
    if rank == 0:
        torch.save({"step": step, "model": model.state_dict()}, f"{checkpoint}.new")
        os.replace(f"{checkpoint}.new", checkpoint)
        with progress.open("a") as file:
            file.write(f"{step}\n")
    dist.barrier()
    if (step, rank, attempt) == (3, dist.get_world_size() - 1, os.environ.get("KILLED_IN")):
        os.kill(os.getpid(), signal.SIGKILL)
print(f"trained rank {rank} of {dist.get_world_size()}", flush=True)
dist.destroy_process_group()
os._exit(0)  # Python's own exit takes a second to destroy what was imported
