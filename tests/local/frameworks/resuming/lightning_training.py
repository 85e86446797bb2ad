"""Shared by the jobs of Lightning: ModelCheckpoint saves; they resume from the highest step."""

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from saving import FOLDER, LAST, SAVES, report_resume, report_save
from torch.utils.data import DataLoader, TensorDataset


class Tiny(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def training_step(self, batch, _):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def weights(self):
        return self.state_dict()


class Reports(Callback):
    """Reports a save at the begin of the next step, when the weights are still those."""

    def __init__(self, file):
        self.file = file

    def on_train_start(self, trainer, module):
        report_resume(trainer.global_step, module.weights())

    def on_train_batch_start(self, trainer, module, *_):
        if (step := trainer.global_step) in SAVES:
            path = FOLDER / f"step={step}.ckpt"
            report_save(step, module.weights(), path.name, path / self.file)


def train(model, file="", **settings):
    """Train on one device; ``file`` has the weights of a checkpoint that is a directory."""
    saving = ModelCheckpoint(
        dirpath=FOLDER, filename="{step}", every_n_train_steps=SAVES[0], save_top_k=-1
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=LAST,
        logger=False,
        callbacks=[saving, Reports(file)],
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
    data = TensorDataset(torch.randn(128, 64), torch.randn(128, 64))
    newest = max(FOLDER.glob("*.ckpt"), default=None)
    trainer.fit(model, DataLoader(data, batch_size=8), ckpt_path=newest)
