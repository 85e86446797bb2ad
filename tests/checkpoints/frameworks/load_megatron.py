"""Loads checkpoints of ``write_megatron.py`` with Megatron-core's ``dist_checkpointing``."""

from typing import Any

import torch
import torch.distributed as dist
from load_digests import Case, report
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing import ShardedTensor

torch.cuda.synchronize = lambda *_: None  # Megatron-core calls both on CPUs, too
torch.cuda.current_device = lambda: "cpu"


def load(case: Case) -> Any:
    iteration = int((case.folder / "latest_checkpointed_iteration.txt").read_text())
    weight = torch.zeros(4, 8)
    sharded = ShardedTensor.from_rank_offsets("weight", weight, (0, dist.get_rank(), 2))
    path = case.folder / f"iter_{iteration:07d}"
    return [iteration, dist_checkpointing.load({"weight": sharded}, str(path))]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    report(load)
    dist.barrier()
    dist.destroy_process_group()
