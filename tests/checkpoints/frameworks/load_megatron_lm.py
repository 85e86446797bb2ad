"""Loads checkpoints of ``write_megatron_lm.py`` with Megatron-LM's own ``load_checkpoint``.

    torchrun --nproc-per-node=2 load_megatron_lm.py OUTCOMES < DIRECTORIES

Each line of the input is the format and a directory with a tracker. Writes a line of JSON for each
into OUTCOMES: the iteration, and a digest of the weights, the optimizer and the schedule of both
ranks. A step of training changes all of them before each. Without Apex and Transformer Engine,
Megatron-core needs one to load the state of an optimizer.

Checkpoints of torch_dcp are loaded with PyTorch alone: ``load_checkpoint`` of 0.19.2 fails on them
with the distributed optimizer, whose ``state_dict`` does not have the argument that it passes.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from write_megatron_lm import DistributedOptimizer, OnCpus, load_checkpoint, started, train


def parts(value: Any) -> list[Any]:
    """Every tensor and number of a state, in a fixed order."""
    if isinstance(value, dict):
        return [part for key in sorted(value, key=str) for part in parts(value[key])]
    if isinstance(value, list | tuple):
        return [part for one in value for part in parts(one)]
    return [value]


def state(model: Any, optimizer: Any, schedule: Any) -> list[Any]:
    """What a load restores, without the step of PyTorch's Adam: torch_dist does not have it."""
    moments = [(one["exp_avg"], one["exp_avg_sq"]) for one in optimizer.state.values()]
    named = dict(model.named_parameters())
    return parts([named, moments, optimizer.param_groups, schedule.state_dict()])


def digest(values: list[Any]) -> str:
    found = hashlib.sha256()
    for one in values:
        is_tensor = isinstance(one, torch.Tensor)
        found.update(one.detach().numpy().tobytes() if is_tensor else repr(one).encode())
    return found.hexdigest()[:16]


class Optimizer(DistributedOptimizer):
    """Loads the legacy format into Adam of PyTorch, which has the step in each state.

    Optimizers of Apex and Transformer Engine, for which Megatron-core is made, have it once.
    """

    def _set_main_param_and_optimizer_states(self, parameter: Any, tensors: Any) -> None:
        step = next(iter(self.optimizer.state.values()))["step"]
        super()._set_main_param_and_optimizer_states(parameter, {"step": step.clone(), **tensors})


def loaded_alone(folder: Path) -> tuple[int, str]:
    """The iteration that the tracker names, and a digest of the checkpoint of torch_dcp."""
    iteration = int((folder / "latest_checkpointed_iteration.txt").read_text())
    with tempfile.TemporaryDirectory() as temporary:
        whole = Path(temporary, "whole.pt")
        dcp_to_torch_save(folder / f"iter_{iteration:07d}", whole)
        found = torch.load(whole, weights_only=False)
    return iteration, digest(parts({key: found[key] for key in ("model", "optimizer")}))


def main() -> None:
    args, model, optimizer, schedule = started()
    optimizer.chained_optimizers[0].__class__ = Optimizer
    lines = [sys.stdin.read().splitlines() if dist.get_rank() == 0 else []]
    dist.broadcast_object_list(lines)
    with Path(sys.argv[1]).open("w", encoding="utf-8") as file:
        for number, line in enumerate(lines[0]):
            kind, args.load = line.split(" ", 1)
            args.ckpt_format, args.use_dist_ckpt = kind, kind != "torch"
            if kind == "torch_dcp":
                iteration, own = loaded_alone(Path(args.load))
            else:
                train(model, optimizer, schedule, number)
                schedule.num_steps = 0  # a load adds to it
                has_frequent = Path(args.load, "non_persistent").is_dir()
                args.non_persistent_ckpt_type = "global" if has_frequent else None
                with torch.no_grad():  # parameters of an optimizer on CPUs are those of the model
                    iteration, _ = load_checkpoint([model], optimizer, schedule)
                own = digest(state(model, optimizer.optimizer, schedule))
            found: list[str] = [""] * dist.get_world_size()
            dist.all_gather_object(found, own)
            if dist.get_rank() == 0:
                print(json.dumps({"iteration": iteration, "digests": found}), file=file, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with OnCpus():
        main()
