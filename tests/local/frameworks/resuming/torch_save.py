"""``torch.save`` under the number of the step; the script loads the highest."""

import torch
from dying import FOLDER, LAST, SAVES, damage_and_die

model, step = torch.nn.Linear(64, 64), 0
if found := sorted(FOLDER.glob("checkpoint_*.pt")):
    state = torch.load(found[-1])
    model.load_state_dict(state["model"])
    step = state["step"]
print(f"resumed at {step}", flush=True)
while step < LAST:
    step += 1
    if step in SAVES:
        path = FOLDER / f"checkpoint_{step}.pt"
        torch.save({"step": step, "model": model.state_dict()}, path)
        if step == SAVES[-1]:
            damage_and_die(path)
