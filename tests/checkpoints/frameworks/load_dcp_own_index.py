"""Loads checkpoints of ``write_dcp.py`` with an index for each rank, as PyTorch's DCP does."""

import os
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from load_digests import Case, report
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard


def load(case: Case) -> Any:
    model = torch.nn.Linear(8, 8)
    fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
    weights, states = get_state_dict(model, optimizer)
    saved = {"model": weights, "optim": states, "step": 0}
    dcp.load(saved, checkpoint_id=case.folder / case.chosen)
    return saved


if __name__ == "__main__":
    dist.init_process_group("gloo")
    report(load)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # Python's own exit takes a second to destroy what was imported
