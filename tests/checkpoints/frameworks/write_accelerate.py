"""Accelerate's save_state with automatic names, on two ranks."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration


def main() -> None:
    settings = ProjectConfiguration(
        project_dir=sys.argv[1], automatic_checkpoint_naming=True, total_limit=3
    )
    accelerator = Accelerator(cpu=True, project_config=settings)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    rows = torch.utils.data.DataLoader(torch.randn(16, 8), batch_size=2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer, rows, schedule = accelerator.prepare(model, optimizer, rows, schedule)
    for _ in range(3):
        for row in rows:
            accelerator.backward(model(row).sum())
            optimizer.step()
        schedule.step()
        accelerator.save_state()


if __name__ == "__main__":
    main()
