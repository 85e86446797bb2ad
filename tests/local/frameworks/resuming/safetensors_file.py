"""safetensors without a framework, one file for each step; the script loads the highest."""

import os

import torch
from safetensors.torch import load_file, save_file
from saving import FOLDER, LAST, SAVES, report_resume, report_save

model, step = torch.nn.Linear(64, 64), 0
if found := sorted(FOLDER.glob("step_*.safetensors")):
    model.load_state_dict(load_file(found[-1]))
    step = int(found[-1].stem.removeprefix("step_"))
report_resume(step, model.state_dict())
while step < LAST:
    step += 1
    torch.nn.init.normal_(model.weight)
    if step in SAVES:
        path = FOLDER / f"step_{step}.safetensors"
        save_file(model.state_dict(), path)
        report_save(step, model.state_dict(), path.name, path)
os._exit(0)  # Python's own exit takes a second to destroy what was imported
