"""torchtitan's checkpoint manager, which loads the highest step."""

import torch
import torch.distributed as dist
from saving import FOLDER, LAST, SAVES, report_resume, report_save
from torch.distributed.checkpoint.stateful import Stateful
from torchtitan.components.checkpoint import CheckpointManager


class Counter(Stateful):
    step = 0

    def state_dict(self):
        return {"step": torch.tensor(self.step)}

    def load_state_dict(self, state):
        self.step = int(state["step"])


class Optimizer(Stateful):
    """An optimizer without state, in the place of torchtitan's container."""

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


dist.init_process_group("gloo")
model, counter = torch.nn.Linear(64, 64), Counter()
config = CheckpointManager.Config(
    enable=True, folder=FOLDER.name, interval=SAVES[0], keep_latest_k=0,
    last_save_model_only=False,
)  # fmt: skip
manager = CheckpointManager(
    config, dataloader=counter, model_parts=[model], optimizers=Optimizer(),
    lr_schedulers=Optimizer(), states={"train_state": counter}, sd_adapter=None,
    base_folder=str(FOLDER.parent),
)  # fmt: skip
manager.load()
report_resume(counter.step, model.state_dict())
while counter.step < LAST:
    counter.step += 1
    torch.nn.init.normal_(model.weight)
    manager.save(counter.step)
    if counter.step in SAVES:
        path = FOLDER / f"step-{counter.step}"
        report_save(counter.step, model.state_dict(), path.name, next(path.glob("*.distcp")))
manager.close()
dist.destroy_process_group()
