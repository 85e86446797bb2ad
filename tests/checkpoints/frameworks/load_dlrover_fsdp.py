"""Loads checkpoints of ``write_dlrover_agents.py`` of a model with FSDP, as DLRover does."""

import os
from functools import partial
from typing import Any

os.environ["TORCHELASTIC_RUN_ID"] = f"loads-{os.getpid()}"  # of its sockets and shared memory

import torch
import torch.distributed as dist
from dlrover.trainer.torch.flash_checkpoint.engine import CheckpointEngine
from dlrover.trainer.torch.flash_checkpoint.fsdp import FsdpShardCheckpointer
from load_digests import Case, report
from torch.distributed.fsdp import FullyShardedDataParallel
from write_dlrover import start_saver


def load(own: FsdpShardCheckpointer, case: Case) -> Any:
    own._engine.checkpoint_dir = str(case.folder)
    model = FullyShardedDataParallel(torch.nn.Linear(8, 8), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters())
    found = own.load_checkpoint(model, optimizer)
    return [found, model.state_dict(), optimizer.state_dict()]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    start_saver()
    checkpointer = FsdpShardCheckpointer("", comm_backend="gloo")
    report(partial(load, checkpointer))
    CheckpointEngine.saver_proc.kill()
    os._exit(0)  # threads of DLRover would be waited for
