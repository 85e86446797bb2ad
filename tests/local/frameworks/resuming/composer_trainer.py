"""Composer's Trainer with ``autoresume``, which loads what ``latest-rank0.pt`` links to."""

import torch
from composer import Callback, Trainer
from composer.models import ComposerClassifier
from saving import FOLDER, LAST, SAVES, report_resume, report_save


class Reports(Callback):
    """Reports a save at the begin of the next batch, when the weights are still those."""

    def fit_start(self, state, logger):
        report_resume(int(state.timestamp.batch), state.model.state_dict())

    def batch_start(self, state, logger):
        if (step := int(state.timestamp.batch)) in SAVES:
            name = f"ep0-ba{step}-rank0.pt"
            report_save(step, state.model.state_dict(), name, FOLDER / name)


model = ComposerClassifier(torch.nn.Linear(64, 2), num_classes=2)
rows = [(torch.randn(64), torch.tensor(number % 2)) for number in range(64)]
Trainer(
    model=model,
    optimizers=torch.optim.SGD(model.parameters(), 0.1),
    train_dataloader=torch.utils.data.DataLoader(rows, batch_size=4),
    max_duration=f"{LAST}ba",
    run_name="resuming",
    autoresume=True,
    save_folder=str(FOLDER),
    save_interval=f"{SAVES[0]}ba",
    callbacks=[Reports()],
    device="cpu",
    progress_bar=False,
).fit()
