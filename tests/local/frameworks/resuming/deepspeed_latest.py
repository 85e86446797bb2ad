"""DeepSpeed, which loads the tag that ``latest`` names, on the CPU."""

import os

import deepspeed
import torch
from saving import FOLDER, LAST, SAVES, report_resume, report_save

model = torch.nn.Linear(64, 64)
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), 0.1),
    config={"train_micro_batch_size_per_gpu": 8},
)
_, client = engine.load_checkpoint(str(FOLDER)) if (FOLDER / "latest").exists() else (None, None)
step = client["step"] if client else 0
report_resume(step, engine.module.state_dict())
while step < LAST:
    step += 1
    torch.nn.init.normal_(model.weight)
    if step in SAVES:
        name = f"global_step{step}"
        engine.save_checkpoint(str(FOLDER), name, client_state={"step": step})
        path = FOLDER / name / "mp_rank_00_model_states.pt"
        report_save(step, engine.module.state_dict(), name, path)
torch.distributed.destroy_process_group()
os._exit(0)  # Python's own exit takes a second to destroy what was imported
