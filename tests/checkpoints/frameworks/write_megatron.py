"""Megatron-core's torch_dist; torch_dcp and the legacy format as Megatron-LM lays them out.

Megatron-LM's own training loop is no package. What it puts around Megatron-core and torch, the
directories ``iter_N`` and the tracker, is written here as it writes it.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing import ShardedTensor

torch.cuda.synchronize = lambda *_: None  # Megatron-core calls both on CPUs, too
torch.cuda.current_device = lambda: "cpu"
TRACKER = "latest_checkpointed_iteration.txt"


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    rank = dist.get_rank()
    for step in (100, 200, 300):
        torch.manual_seed(step + rank)
        weight = torch.randn(4, 8)
        args = {"iteration": step, "checkpoint_version": 3.0}

        path = folder / "torch_dist" / f"iter_{step:07d}"
        path.mkdir(parents=True, exist_ok=True)
        sharded = ShardedTensor.from_rank_offsets("weight", weight, (0, rank, 2))
        dist_checkpointing.save({"weight": sharded, **args}, str(path))

        dcp.save({"weight": weight, **args}, checkpoint_id=folder / f"torch_dcp/iter_{step:07d}")

        path = folder / "legacy" / f"iter_{step:07d}" / f"mp_rank_{rank:02d}"
        path.mkdir(parents=True)
        torch.save({"model": weight, **args}, path / "model_optim_rng.pt")
        torch.save({"exp_avg": weight}, path / "distrib_optim.pt")
        dist.barrier()
        if rank == 0:
            for kind in ("torch_dist", "torch_dcp", "legacy"):
                (folder / kind / TRACKER).write_text(str(step))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
