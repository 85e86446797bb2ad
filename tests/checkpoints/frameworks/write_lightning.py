"""Lightning: a file for each step and a copy of the last, and sharded directories of FSDP2."""

import sys
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


class Sharded(Model):
    def configure_model(self) -> None:
        fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])


def train(model: Model, folder: Path, **settings: object) -> None:
    rows = torch.utils.data.DataLoader(torch.randn(16, 8), batch_size=2)
    trainer = lightning.Trainer(
        default_root_dir=folder.with_name("root"), accelerator="cpu", devices=2, max_steps=6,
        logger=False, enable_progress_bar=False, enable_model_summary=False, **settings,
    )  # fmt: skip
    trainer.fit(model, rows)


def main() -> None:
    folder = Path(sys.argv[1])
    every = {"every_n_train_steps": 2, "save_top_k": -1}
    files = ModelCheckpoint(folder / "files", save_last=True, **every)
    train(
        Model(), folder / "files", strategy="ddp", callbacks=[files], plugins=[TorchCheckpointIO()]
    )
    sharded = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
    saves = ModelCheckpoint(folder / "sharded", **every)
    train(Sharded(), folder / "sharded", strategy=sharded, callbacks=[saves])


if __name__ == "__main__":
    main()
