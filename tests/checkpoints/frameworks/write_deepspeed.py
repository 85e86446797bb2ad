"""DeepSpeed on two ranks: ZeRO 1 and ZeRO 3."""

import os
import sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch


def main() -> None:
    folder = Path(sys.argv[1])
    for stage in (1, 3):
        model = torch.nn.Linear(8, 8)
        settings = {
            "train_micro_batch_size_per_gpu": 1,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
            "zero_optimization": {"stage": stage},
            "bf16": {"enabled": True},
        }
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=settings
        )
        for _ in range(3):
            engine.backward(engine(torch.randn(1, 8, dtype=torch.bfloat16)).float().sum())
            engine.step()
            engine.save_checkpoint(str(folder / f"zero_{stage}"))


if __name__ == "__main__":
    main()
