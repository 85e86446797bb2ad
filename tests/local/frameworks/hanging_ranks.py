"""Trains on gloo with a framework, and hangs at a step in the way that the arguments name.

``python hanging_ranks.py FRAMEWORK KIND RANK STEP FOLDER``: FRAMEWORK is ddp, fsdp, trainer or
lightning. Rank 0 reports the steps. FOLDER may be on storage that stops responding.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import holdfast.training

FRAMEWORK, KIND, RANK, STEP, FOLDER = (*sys.argv[1:3], *map(int, sys.argv[3:5]), Path(sys.argv[5]))
OWN = int(os.environ["RANK"])
WIDTH = 16
READY = FOLDER.parent / f"ready-{OWN}"


class Numbers(torch.utils.data.Dataset):
    """Batches of one rank; those after the step do not arrive."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if KIND == "dataloader" and OWN == RANK and index >= STEP + 4:
            reads_forever()
        return torch.zeros(WIDTH)


def reads_forever():
    time.sleep(3600)


def falls_asleep():
    time.sleep(3600)


def writes_a_file():
    with (FOLDER / f"rank-{OWN}").open("wb") as file:
        file.write(b"x" * 4096)
        os.fsync(file.fileno())


def before(step):
    """Called before each step."""
    time.sleep(0.05)
    if step >= STEP - 2 and not READY.exists():
        READY.write_text(str(os.getpid()), encoding="ascii")
    if KIND in ("storage", "sigstop") and OWN == RANK and step >= STEP - 1:
        while not (FOLDER.parent / "go").exists():  # the storage stops, or this process is stopped
            time.sleep(0.05)
    if step != STEP:
        return
    if KIND == "asleep" and OWN == RANK:
        falls_asleep()
    if KIND == "mismatch":
        if OWN == RANK:
            dist.barrier()
        else:
            dist.all_reduce(torch.ones(3))
    if KIND == "storage" and OWN == RANK:
        writes_a_file()


def after(step):
    if OWN == 0:
        holdfast.training.step(step)


def loader():
    return torch.utils.data.DataLoader(Numbers(), batch_size=1, num_workers=1, prefetch_factor=2)


def by_hand(model):
    for step, batch in enumerate(loader()):
        before(step)
        model(batch).sum().backward()
        after(step)


def ddp():
    by_hand(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH)))


def fsdp():
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - of one framework
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - of one framework

    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    by_hand(fully_shard(model, mesh=mesh))


def trainer():
    from transformers import (  # noqa: PLC0415 - of one framework
        PretrainedConfig,
        PreTrainedModel,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    class Model(PreTrainedModel):
        config_class = PretrainedConfig

        def __init__(self, config):
            super().__init__(config)
            self.layer = torch.nn.Linear(WIDTH, WIDTH)
            self.post_init()

        def forward(self, inputs):
            return {"loss": self.layer(inputs).sum()}

    class Steps(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            before(state.global_step)

        def on_step_end(self, args, state, control, **_):
            after(state.global_step)

    arguments = TrainingArguments(
        output_dir=str(FOLDER.parent / "out"), max_steps=90_000, per_device_train_batch_size=1,
        use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=10**6,
        dataloader_num_workers=1, remove_unused_columns=False, ddp_backend="gloo",
    )  # fmt: skip
    Trainer(
        model=Model(PretrainedConfig()), args=arguments, train_dataset=Numbers(),
        callbacks=[Steps()], data_collator=lambda rows: {"inputs": torch.stack(rows)},
    ).train()  # fmt: skip


def lightning():
    import lightning as pl  # noqa: PLC0415 - of one framework

    class Tiny(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(WIDTH, WIDTH)

        def training_step(self, batch, _):
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    class Steps(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            before(batch_idx)

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            after(batch_idx)

    pl.Trainer(
        accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp", max_epochs=1,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Steps()], use_distributed_sampler=False,
    ).fit(Tiny(), loader())  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    if FRAMEWORK in ("ddp", "fsdp"):
        dist.init_process_group("gloo", timeout=timedelta(hours=1))
    globals()[FRAMEWORK]()
