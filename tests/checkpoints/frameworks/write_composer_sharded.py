"""Composer's Trainer with FSDP on two ranks, and a sharded checkpoint for each epoch.

Composer asks CUDA for the device of FSDP; without a GPU it is the CPU.
"""

import sys

import torch
from composer import Trainer
from composer.models import ComposerClassifier
from composer.utils import dist


def main() -> None:
    dist.initialize_dist("cpu")
    torch.cuda.current_device = lambda: torch.device("cpu")
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    model = ComposerClassifier(layers, num_classes=2)
    rows = [(torch.randn(8), torch.tensor(number % 2)) for number in range(16)]
    data = torch.utils.data.DataLoader(rows, batch_size=4, sampler=dist.get_sampler(rows))
    Trainer(
        model=model,
        optimizers=torch.optim.AdamW(model.parameters()),
        train_dataloader=data,
        max_duration="3ep",
        save_folder=sys.argv[1] + "/sharded",
        save_interval="1ep",
        device="cpu",
        parallelism_config={"fsdp": {"state_dict_type": "sharded"}},
        progress_bar=False,
    ).fit()


if __name__ == "__main__":
    main()
