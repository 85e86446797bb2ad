"""``torch.save`` under the number of the step; the script loads the highest."""

import os

import torch
from saving import FOLDER, LAST, SAVES, report_resume, report_save

model, step = torch.nn.Linear(64, 64), 0
if found := sorted(FOLDER.glob("checkpoint_*.pt")):
    state = torch.load(found[-1])
    model.load_state_dict(state["model"])
    step = state["step"]
report_resume(step, model.state_dict())
while step < LAST:
    step += 1
    torch.nn.init.normal_(model.weight)
    if step in SAVES:
        path = FOLDER / f"checkpoint_{step}.pt"
        torch.save({"step": step, "model": model.state_dict()}, path)
        report_save(step, model.state_dict(), path.name, path)
os._exit(0)  # Python's own exit takes a second to destroy what was imported
