"""Loads checkpoints of ``write_megatron_lm.py`` with Megatron-LM's own ``load_checkpoint``.

It loads the weights, the optimizer and the schedule. A step of training changes all of them before
each. Without Apex and Transformer Engine, Megatron-core needs one to load the state of an
optimizer.

Checkpoints of torch_dcp are loaded with PyTorch alone: ``load_checkpoint`` of 0.19.2 fails on them
with the distributed optimizer, whose ``state_dict`` does not have the argument that it passes.
"""

import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from load_digests import Case, report
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from write_megatron_lm import DistributedOptimizer, OnCpus, load_checkpoint, started, train


def state(model: Any, optimizer: Any, schedule: Any) -> list[Any]:
    """What a load restores, without the step of PyTorch's Adam: torch_dist does not have it."""
    moments = [(one["exp_avg"], one["exp_avg_sq"]) for one in optimizer.state.values()]
    named = dict(model.named_parameters())
    return [named, moments, optimizer.param_groups, schedule.state_dict()]


class Optimizer(DistributedOptimizer):
    """Loads the legacy format into Adam of PyTorch, which has the step in each state.

    Optimizers of Apex and Transformer Engine, for which Megatron-core is made, have it once.
    """

    def _set_main_param_and_optimizer_states(self, parameter: Any, tensors: Any) -> None:
        step = next(iter(self.optimizer.state.values()))["step"]
        super()._set_main_param_and_optimizer_states(parameter, {"step": step.clone(), **tensors})


def loaded_alone(folder: Path) -> tuple[int, Any]:
    """The iteration that the tracker names, and the state of the checkpoint of torch_dcp."""
    iteration = int((folder / "latest_checkpointed_iteration.txt").read_text())
    with tempfile.TemporaryDirectory() as temporary:
        whole = Path(temporary, "whole.pt")
        dcp_to_torch_save(folder / f"iter_{iteration:07d}", whole)
        found = torch.load(whole, weights_only=False)
    return iteration, {key: found[key] for key in ("model", "optimizer")}


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Tensors of floating-point numbers in a state."""
    if isinstance(value, dict | list | tuple):
        inside = value.values() if isinstance(value, dict) else value
        return [found for one in inside for found in tensors_of(one)]
    return [value] if isinstance(value, torch.Tensor) and value.is_floating_point() else []


def main() -> None:
    args, model, optimizer, schedule = started()
    optimizer.chained_optimizers[0].__class__ = Optimizer
    seeds = count()

    def load(case: Case) -> Any:
        kind = case.recording.partition("/")[2]
        args.load, args.ckpt_format, args.use_dist_ckpt = str(case.folder), kind, kind != "torch"
        if kind == "torch_dcp":
            iteration, own = loaded_alone(case.folder)
        else:
            train(model, optimizer, schedule, next(seeds))
            schedule.num_steps = 0  # a load adds to it
            has_frequent = (case.folder / "non_persistent").is_dir()
            args.non_persistent_ckpt_type = "global" if has_frequent else None
            with torch.no_grad():  # parameters of an optimizer on CPUs are those of the model
                iteration, _ = load_checkpoint([model], optimizer, schedule)
            own = state(model, optimizer.optimizer, schedule)
        return [iteration, own]

    report(load)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with OnCpus():
        main()
