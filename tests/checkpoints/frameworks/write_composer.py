"""Composer's Trainer in one process, with a checkpoint for each epoch."""

import sys

import torch
from composer import Trainer
from composer.models import ComposerClassifier


def main() -> None:
    model = ComposerClassifier(torch.nn.Linear(8, 2), num_classes=2)
    rows = [(torch.randn(8), torch.tensor(number % 2)) for number in range(16)]
    Trainer(
        model=model,
        optimizers=torch.optim.AdamW(model.parameters()),
        train_dataloader=torch.utils.data.DataLoader(rows, batch_size=4),
        max_duration="3ep",
        save_folder=sys.argv[1] + "/files",
        save_interval="1ep",
        device="cpu",
        progress_bar=False,
    ).fit()


if __name__ == "__main__":
    main()
