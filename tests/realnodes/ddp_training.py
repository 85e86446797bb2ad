"""Trains one model with DDP, and goes on from the last step that rank 0 has saved.

It trains until there is a file ``enough``, or for ``STEPS`` steps if that is set. Rank 0 then
writes the digest of the weights after its last step, or after each of the ``STEPS``. A file
``eats-ATTEMPT-RANK`` makes a rank take 4 GiB.
"""

import hashlib
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

folder = pathlib.Path(os.environ["FOLDER"])
attempt, steps = os.environ["ATTEMPT"] or "1", int(os.environ.get("STEPS", "0"))
rank, ranks = int(os.environ["RANK_OF"].rpartition("/")[2]), int(os.environ["RANKS"])
torch.set_num_threads(1)
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/rendezvous-{attempt}", rank=rank, world_size=ranks
)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
saved, step = folder / "saved.pt", 0
if saved.exists():
    found = torch.load(saved)
    model.module.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    step = found["step"]
is_over = torch.zeros(1)
digests = {}
while not is_over:
    step += 1
    if (folder / f"eats-{attempt}-{rank}").exists():
        eaten = [bytearray(b"x" * 2**20) for _ in range(2**12)]
    batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(step * ranks + rank))
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    is_over = torch.tensor([float(step == steps or (folder / "enough").exists())])
    dist.broadcast(is_over, 0)
    weights = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    if steps or is_over:
        digests[step] = hashlib.sha256(weights).hexdigest()
    if steps:
        continue
    if rank == 0:
        new = folder / f"new-{attempt}"
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "step": step}, new)
        new.replace(saved)
    (folder / f"attempt-{attempt}-{rank}").write_text(str(step))
    time.sleep(0.2)
if rank == 0:
    (folder / "result").write_text(json.dumps(digests))
dist.barrier()
