"""NVRx's local checkpoints of four ranks: each file also on another rank, and without replicas.

NVRx deletes older checkpoints once a save is complete. That is left out, as if the job had been
killed right before it.
"""

import sys
from pathlib import Path

import torch.distributed as dist
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import (
    LocalCheckpointManager,
)
from nvidia_resiliency_ext.checkpointing.local.replication.strategies import (
    CliqueReplicationStrategy,
)
from nvrx_state import CpuState


class Keeping(LocalCheckpointManager):
    def _cleanup(self, iteration: int) -> None:
        pass


def main() -> None:
    dist.init_process_group("gloo")
    for session in ("replicated", "alone"):
        strategy = None
        if session == "replicated":
            strategy = CliqueReplicationStrategy.from_replication_params(2, 2)
        manager = Keeping(Path(sys.argv[1]), session, strategy)
        for iteration in (100, 200, 300):
            manager.save(CpuState(iteration, dist.get_rank()), iteration)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
