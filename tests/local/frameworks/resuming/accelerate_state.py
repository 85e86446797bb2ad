"""Accelerate with automatic names; ``load_state()`` loads the newest."""

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from dying import FOLDER, LAST, SAVES, damage_and_die


class Counter:
    step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


project = ProjectConfiguration(project_dir=str(FOLDER), automatic_checkpoint_naming=True)
accelerator = Accelerator(cpu=True, project_config=project)
model = torch.nn.Linear(64, 64)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
counter = Counter()
accelerator.register_for_checkpointing(counter)
if found := sorted(FOLDER.glob("checkpoints/checkpoint_*")):
    accelerator.load_state()
    project.iteration = len(found)
print(f"resumed at {counter.step}", flush=True)
while counter.step < LAST:
    counter.step += 1
    if counter.step in SAVES:
        path = accelerator.save_state()
        if counter.step == SAVES[-1]:
            newest = max((FOLDER / "checkpoints").iterdir(), key=lambda one: one.name)
            damage_and_die(newest / "model.safetensors")
accelerator.end_training()
