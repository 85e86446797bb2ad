"""Accelerate with automatic names; ``load_state()`` loads the newest."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from saving import FOLDER, LAST, SAVES, report_resume, report_save


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
report_resume(counter.step, model.state_dict())
while counter.step < LAST:
    counter.step += 1
    torch.nn.init.normal_(accelerator.unwrap_model(model).weight)
    if counter.step in SAVES:
        accelerator.save_state()
        newest = max((FOLDER / "checkpoints").iterdir(), key=lambda one: one.name)
        name, path = f"checkpoints/{newest.name}", newest / "model.safetensors"
        report_save(counter.step, model.state_dict(), name, path)
accelerator.end_training()
os._exit(0)  # Python's own exit takes a second to destroy what was imported
