"""PyTorch DCP: sync, async, by fsspec, and with an index for each rank."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.fsspec_filesystem import FsspecWriter
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(1, 4):
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
        weights, states = get_state_dict(model, optimizer)
        saved = {"model": weights, "optim": states, "step": step}
        dcp.save(saved, checkpoint_id=folder / f"sync/step_{step}")
        dcp.async_save(saved, checkpoint_id=folder / f"async/step_{step}").result()
        dcp.save(saved, storage_writer=FsspecWriter(f"file://{folder}/fsspec/step_{step}"))
        own = folder / f"own_index/step_{step}"
        dcp.save(saved, checkpoint_id=own, use_collectives=False)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
