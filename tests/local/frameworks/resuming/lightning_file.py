"""Lightning's ModelCheckpoint; the script resumes from the highest step."""

import lightning
import torch
from dying import FOLDER, LAST, SAVES, damage_and_die
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset


class Tiny(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)

    def training_step(self, batch, _):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Dying(Callback):
    def on_train_start(self, trainer, _):
        print(f"resumed at {trainer.global_step}", flush=True)

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == SAVES[-1]:
            damage_and_die(FOLDER / f"step={SAVES[-1]}.ckpt")


saving = ModelCheckpoint(
    dirpath=FOLDER, filename="{step}", every_n_train_steps=SAVES[0], save_top_k=-1
)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    max_steps=LAST,
    logger=False,
    callbacks=[saving, Dying()],
    enable_progress_bar=False,
    enable_model_summary=False,
)
data = TensorDataset(torch.randn(128, 64), torch.randn(128, 1))
newest = max(FOLDER.glob("*.ckpt"), default=None)
trainer.fit(Tiny(), DataLoader(data, batch_size=8), ckpt_path=newest)
