"""Lightning: a file for each step and a copy of the last, and sharded directories of FSDP."""

import os
import sys
from pathlib import Path

import lightning
import torch
import torch.distributed.checkpoint as dcp
from lightning.fabric.strategies.fsdp import _METADATA_FILENAME
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    folder = Path(sys.argv[1])
    rows = torch.utils.data.DataLoader(torch.randn(16, 8), batch_size=2)
    saves = ModelCheckpoint(folder / "files", every_n_train_steps=2, save_top_k=-1, save_last=True)
    trainer = lightning.Trainer(
        default_root_dir=folder / "root", accelerator="cpu", devices=2, strategy="ddp",
        max_steps=6, callbacks=[saves], logger=False, enable_progress_bar=False,
        plugins=[TorchCheckpointIO()], enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Model(), rows)
    write_sharded(folder / "sharded")


def write_sharded(folder: Path) -> None:
    """As ``ModelParallelStrategy`` and ``FSDPStrategy`` save, which need GPUs to train."""
    for step in (2, 4, 6):
        path = folder / f"epoch=0-step={step}.ckpt"
        dcp.save({"model": {"weight": torch.randn(8, 8)}}, checkpoint_id=path)
        if int(os.environ["RANK"]) == 0:
            reported = {
                "global_step": step,
                "epoch": 0,
                "pytorch-lightning_version": lightning.__version__,
            }
            torch.save(reported, path / _METADATA_FILENAME)


if __name__ == "__main__":
    main()
