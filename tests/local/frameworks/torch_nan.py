"""Trains on batches of which the twelfth is broken; saves each step, resumes from the newest."""

import os
import time
from pathlib import Path

import torch

from holdfast import training

BROKEN = 12
END = 20 if training.is_skipped(BROKEN) else 100_000
folder = Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
step = max((int(one.stem.removeprefix("step-")) for one in folder.glob("step-*.pt")), default=0)
if step:
    state = torch.load(folder / f"step-{step}.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
print(f"resumed at {step}", flush=True)
training.step(step)
while step < END:
    step += 1
    batch = torch.full((8, 4), torch.nan) if step == BROKEN else torch.randn(8, 4)
    if training.is_skipped(step):
        print(f"skipped {step}", flush=True)
        continue
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step <= BROKEN + 2:
        new = folder / f"new-{step}.tmp"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, new)
        os.replace(new, folder / f"step-{step}.pt")
    training.step(step, loss=loss.detach())
    time.sleep(0.02)
are_finite = all(map(torch.all, map(torch.isfinite, model.parameters())))
print("weights are finite:", are_finite, flush=True)
os._exit(0)  # Python's own exit takes a second to destroy what was imported
