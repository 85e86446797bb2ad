"""Loads checkpoints of ``write_dcp.py`` with an index for each rank, as PyTorch's DCP does."""

import gc
import os
from typing import Any

gc.disable()  # for the imports: they leave next to nothing to collect

import torch  # noqa: E402 - see above
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from load_digests import Case, report  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402


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
