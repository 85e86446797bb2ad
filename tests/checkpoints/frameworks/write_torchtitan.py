"""torchtitan: its checkpoint manager, sync and async, with a sharded model and its optimizer.

With a second argument, resumes with the manager instead, and prints the step that it loaded and a
sum of the weights.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard
from torchtitan.components.checkpoint import CheckpointManager

EVERY = 2


class Optimizer(Stateful):
    """State of an optimizer, by the names of parameters, as torchtitan's container has it."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._own = torch.optim.AdamW(model.parameters())

    def step(self) -> None:
        self._own.step()

    def state_dict(self) -> dict:
        return get_optimizer_state_dict(self._model, self._own)

    def load_state_dict(self, state: dict) -> None:
        set_optimizer_state_dict(self._model, self._own, state)


class TrainState(Stateful):
    """Steps and tokens, as torchtitan's trainer has them."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict:
        return {"step": torch.tensor(self.step, dtype=torch.int32)}

    def load_state_dict(self, state: dict) -> None:
        self.step = int(state["step"])


def manager(folder: Path, mode: str, size: int = 8) -> tuple[CheckpointManager, list]:
    torch.manual_seed(0)
    model = torch.nn.Linear(size, size)
    world = dist.get_world_size()
    fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (world,)))
    optimizer, state = Optimizer(model), TrainState()
    config = CheckpointManager.Config(
        enable=True, folder=mode, interval=EVERY, keep_latest_k=0, async_mode=mode,
        last_save_model_only=False,
    )  # fmt: skip
    own = CheckpointManager(
        config, dataloader=state, model_parts=[model], optimizers=optimizer, lr_schedulers=state,
        states={"train_state": state}, sd_adapter=None, base_folder=str(folder),
    )  # fmt: skip
    return own, [model, optimizer, state]


def write(folder: Path, mode: str) -> None:
    own, (model, optimizer, state) = manager(folder, mode)
    for step in range(1, 3 * EVERY + 1):
        state.step = step
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
        own.save(step)
    own.maybe_wait_for_saving()
    own.close()


def load(folder: Path) -> None:
    own, (model, _, state) = manager(folder.parent, folder.name)
    assert own.load()
    total = sum(float(one.full_tensor().double().sum()) for one in model.parameters())
    sys.stdout.write(f"{state.step} {total:.9f}\n")
    own.close()


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    if len(sys.argv) > 2:
        load(folder)
    else:
        write(folder, "disabled")
        write(folder, "async")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
