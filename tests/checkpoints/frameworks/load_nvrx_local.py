"""Loads checkpoints of ``write_nvrx_local.py`` with NVRx on four ranks.

If a rank has to get its file from the replica on another rank, PyTorch reads it: NVRx needs CUDA
for the transfer.
"""

from typing import Any

import torch
import torch.distributed as dist
from load_digests import Case, report
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import (
    LocalCheckpointManager,
)
from nvidia_resiliency_ext.checkpointing.local.replication.strategies import (
    CliqueReplicationStrategy,
)

RANKS = 4


def load(case: Case) -> Any:
    strategy = None
    if case.folder.name == "replicated":
        strategy = CliqueReplicationStrategy.from_replication_params(2, 2)
    own = LocalCheckpointManager(case.folder.parent, case.folder.name, strategy)
    found = own.find_latest()
    names = {rank: f"iter_{found:07d}_{rank}_local.pt" for rank in range(RANKS)}
    if all((case.folder / str(rank) / name).exists() for rank, name in names.items()):
        state = own.load()[0]
    else:
        path = next(case.folder.glob(f"*/{names[dist.get_rank()]}"))
        state = torch.load(path, weights_only=False)
    return [found, state.iteration, list(state.tensors)]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    report(load)
    dist.barrier()
    dist.destroy_process_group()
