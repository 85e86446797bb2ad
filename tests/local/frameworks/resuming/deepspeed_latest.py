"""DeepSpeed, which loads the tag that ``latest`` names, on the CPU."""

import deepspeed
import torch
from dying import FOLDER, LAST, SAVES, damage_and_die

model = torch.nn.Linear(64, 64)
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), 0.1),
    config={"train_micro_batch_size_per_gpu": 8},
)
_, client = engine.load_checkpoint(str(FOLDER)) if (FOLDER / "latest").exists() else (None, None)
step = client["step"] if client else 0
print(f"resumed at {step}", flush=True)
while step < LAST:
    step += 1
    if step in SAVES:
        engine.save_checkpoint(str(FOLDER), f"global_step{step}", client_state={"step": step})
        if step == SAVES[-1]:
            damage_and_die(FOLDER / f"global_step{step}/mp_rank_00_model_states.pt")
torch.distributed.destroy_process_group()
