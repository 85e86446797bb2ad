"""Megatron-core's torch_dist; the script writes and reads the tracker as Megatron-LM does."""

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing import ShardedTensor
from saving import FOLDER, LAST, SAVES, report_resume, report_save

torch.cuda.synchronize = lambda *_: None  # Megatron-core calls both on CPUs, too
torch.cuda.current_device = lambda: "cpu"
TRACKER = FOLDER / "latest_checkpointed_iteration.txt"


def sharded(model):
    tensors = model.state_dict().items()
    return {name: ShardedTensor.from_rank_offsets(name, tensor) for name, tensor in tensors}


def main():
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    model, step = torch.nn.Linear(64, 64), 0
    if TRACKER.exists():
        step = int(TRACKER.read_text())
        wanted = {"model": sharded(model)}
        state = dist_checkpointing.load(wanted, str(FOLDER / f"iter_{step:07d}"))
        model.load_state_dict(state["model"])
        assert state["iteration"] == step
    report_resume(step, model.state_dict())
    while step < LAST:
        step += 1
        torch.nn.init.normal_(model.weight)
        if step in SAVES:
            save(model, step)
    dist.destroy_process_group()


def save(model, step):
    path = FOLDER / f"iter_{step:07d}"
    path.mkdir(exist_ok=True)
    dist_checkpointing.save({"model": sharded(model), "iteration": step}, str(path))
    TRACKER.write_text(str(step))
    largest = max(path.glob("*.distcp"), key=lambda one: one.stat().st_size)
    report_save(step, model.state_dict(), path.name, largest)


if __name__ == "__main__":  # Megatron-core writes in processes that import this file
    main()
