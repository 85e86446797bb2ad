"""Trains one model with DDP, and goes on from the last step that was saved.

Rank 0 saves each step in one file. With ``HOLDFAST_CHECKPOINT_DIR``, each tenth step gets a
checkpoint of its own there, under its name from the first byte on: a file of rank 0, or with
``SAVES=dcp`` one of all ranks. The newest one is loaded, complete or not.

It trains until there is a file ``enough``, or for ``STEPS`` steps if that is set. Rank 0 then
writes the digest of the weights after its last step, or after each of the ``STEPS``. A file
``eats-ATTEMPT-RANK`` makes a rank take 4 GiB.
"""

import gc
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
saves = os.environ.get("SAVES", "")
checkpoints = pathlib.Path(os.environ.get("HOLDFAST_CHECKPOINT_DIR", folder))
BALLAST = torch.zeros(16384)  # 64 KiB, so that a save can be cut off
if saves == "dcp":  # takes seconds
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def newest() -> pathlib.Path | None:
    if not saves:
        return folder / "saved.pt" if (folder / "saved.pt").exists() else None
    return max(checkpoints.glob("step-*"), key=lambda one: one.name, default=None)


def load(path: pathlib.Path) -> int:
    if saves != "dcp":
        found = torch.load(path)
        model.module.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        return found["step"]
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": torch.tensor(0)}
    dcp.load(state, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    return int(state["step"])


def save() -> None:
    if saves == "dcp":
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": torch.tensor(step)}
        dcp.save({**state, "ballast": BALLAST}, checkpoint_id=checkpoints / f"step-{step:06}")
    elif rank == 0:
        new = checkpoints / f"step-{step:06}.pt" if saves else folder / f"new-{attempt}"
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "step": step, "ballast": BALLAST}, new)
        if not saves:
            new.replace(folder / "saved.pt")


torch.set_num_threads(1)
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/rendezvous-{attempt}", rank=rank, world_size=ranks
)
torch.manual_seed(0)
gc.disable()  # PyTorch imports 1,000 modules for these two, and next to nothing of them is garbage
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
gc.enable()
saved, step = newest(), 0
if saved is not None:
    step = load(saved)
    (folder / f"resumed-{attempt}-{rank}").write_text(saved.name)
    (folder / f"loaded-{attempt}-{rank}").write_text(str(step))
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
    if not saves or step % 10 == 0:
        save()
        (folder / f"acknowledged-{rank}").write_text(f"{step:06}")
    (folder / f"attempt-{attempt}-{rank}").write_text(str(step))
    time.sleep(0.4)
if rank == 0:
    (folder / "result").write_text(json.dumps(digests))
dist.barrier()
dist.destroy_process_group()  # at exit, its threads may end the process with SIGABRT
if __name__ == "__main__":  # not an actor of Ray
    os._exit(0)  # what Python does at its exit takes a quarter of the processor time of a short job
