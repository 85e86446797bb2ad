"""DeepSpeed's conversion of ZeRO 1 checkpoints of two ranks to universal ones."""

import os
import shutil
import sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.checkpoint import ds_to_universal


def main() -> None:
    folder = Path(sys.argv[1])
    plain, universal = folder / "plain", folder / "universal"
    model = torch.nn.Linear(8, 8)
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
        "bf16": {"enabled": True},
    }
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=settings
    )
    for _ in range(3):
        engine.backward(engine(torch.randn(1, 8, dtype=torch.bfloat16)).float().sum())
        engine.step()
        engine.save_checkpoint(str(plain))
    dist.barrier()
    if dist.get_rank() == 0:
        universal.mkdir()
        for step in (1, 2, 3):
            convert(plain / f"global_step{step}", universal / f"global_step{step}_universal")
        (universal / "latest_universal").write_text("global_step3_universal")
        shutil.rmtree(plain)
    dist.barrier()
    dist.destroy_process_group()


def convert(source: Path, target: Path) -> None:
    parser = ds_to_universal.parse_arguments
    sys.argv[1:] = [
        "--input_folder", str(source), "--output_folder", str(target),
        "--num_extract_workers", "1", "--num_merge_workers", "1", "--inject_missing_state",
    ]  # fmt: skip
    ds_to_universal.main(parser())


if __name__ == "__main__":
    main()
