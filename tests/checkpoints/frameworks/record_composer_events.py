"""Record the events of a Composer Trainer, with what a callback sees in each.

Run it in an environment with `mosaicml`; the arguments are the folder of the checkpoints and the
file of the recording.
"""

import json
import sys

import torch
from composer import Callback, Trainer
from composer.models import ComposerClassifier

EVENTS = ("fit_start", "batch_start", "batch_end", "fit_end")


class Recorder(Callback):
    def __init__(self) -> None:
        self.rows: list[dict] = []

    def run_event(self, event, state, logger) -> None:
        if event.value in EVENTS:
            saved = [getattr(one, "saved_checkpoints", None) for one in state.callbacks]
            loss = float(state.loss) if state.loss.numel() == 1 else None
            row = {"event": event.value, "batch": int(state.timestamp.batch), "loss": loss}
            self.rows.append({**row, "saved": [[*paths] for paths in saved if paths is not None]})


def main() -> None:
    recorder = Recorder()
    rows = [(torch.randn(8), torch.tensor(number % 2)) for number in range(16)]
    model = ComposerClassifier(torch.nn.Linear(8, 2), num_classes=2)
    own = []
    if len(sys.argv) > 3:  # tried with the real package, too
        from holdfast.training.composer import HoldfastCallback  # noqa: PLC0415 - not needed for the recording

        own = [HoldfastCallback(loss_interval=2)]
    Trainer(
        model=model,
        optimizers=torch.optim.AdamW(model.parameters()),
        train_dataloader=torch.utils.data.DataLoader(rows, batch_size=4),
        max_duration="2ep",
        save_folder=sys.argv[1],
        save_interval="3ba",
        device="cpu",
        callbacks=[recorder, *own],
    ).fit()
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in recorder.rows)


if __name__ == "__main__":
    main()
