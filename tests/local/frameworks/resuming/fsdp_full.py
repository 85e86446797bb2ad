"""FSDP: rank 0 writes the full state with ``torch.save``; the script loads the highest step."""

import os

import torch
import torch.distributed as dist
from saving import FOLDER, LAST, SAVES, report_resume, report_save
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)

dist.init_process_group("gloo")
model, step = torch.nn.Linear(64, 64), 0
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
if found := sorted(FOLDER.glob("full_*.pt")):
    state = torch.load(found[-1])
    set_model_state_dict(model, state["model"], options=FULL)
    step = state["step"]
report_resume(step, get_model_state_dict(model, options=FULL))
while step < LAST:
    step += 1
    torch.nn.init.normal_(model.weight)
    weights = get_model_state_dict(model, options=FULL)
    if step in SAVES:
        path = FOLDER / f"full_{step}.pt"
        torch.save({"step": step, "model": weights}, path)
        report_save(step, weights, path.name, path)
dist.destroy_process_group()
os._exit(0)  # Python's own exit takes a second to destroy what was imported
