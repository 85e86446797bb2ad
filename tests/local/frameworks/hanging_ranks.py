"""Trains on gloo with a framework, and hangs again and again in the ways that a file names.

``python hanging_ranks.py FRAMEWORK FILE FOLDER``: FRAMEWORK is ddp, fsdp, trainer or lightning.
FILE has a line for each hang: ``KIND RANK STEPS PAUSE``, the steps since the one before, and the
seconds of a pause at half of them. A file ``release-N`` ends hang N, so that the ranks continue;
mismatched collectives cannot end. FOLDER may be on storage that stops responding. Rank 0 reports
16 steps at a time: a launcher learns the pause before them as 16 short ones, so that after one hang
it does not wait longer for the next. ``HANGING_RANKS_HEARTBEATS=nvrx`` sends the heartbeats that
NVRx's ft_launcher expects. ``HANGING_RANKS_STEP_S`` is the time of a step that no rank needs a CPU
for, as if an accelerator computed.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import holdfast.training

FRAMEWORK, FILE, FOLDER = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
OWN = int(os.environ["RANK"])
BEGAN = FILE.parent / "began"
WIDTH = 16
MONITOR = None
WARM_UP = 32
"""Steps before those of the first hang."""

REPORTED = int(os.environ.get("HANGING_RANKS_REPORTED", "16"))
"""Steps that are reported at a time."""

STEP_S = float(os.environ.get("HANGING_RANKS_STEP_S", "0.02"))


class Hang:
    """One line of the file."""

    def __init__(self, number, line, start):
        self.number = number
        self.kind, rank, steps, pause_s = line.split()
        self.is_own = int(rank) == OWN
        self.step, self.pause_s = start + int(steps), int(pause_s)
        self.pause_step = self.step - int(steps) // 2

    def file(self, what):
        return FILE.parent / f"{what}-{self.number}"

    def is_released(self):
        return self.file("release").exists()


def hangs():
    """Return the hangs by step."""
    found, start = {}, WARM_UP
    for number, line in enumerate(FILE.read_text(encoding="ascii").splitlines()):
        hang = Hang(number, line, start)
        found[hang.step], start = hang, hang.step
    return found


HANGS = hangs()


class Numbers(torch.utils.data.Dataset):
    """Batches of one rank; some arrive late."""

    def __init__(self):
        self.fetched = -1  # by one worker, in the order of the steps

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        self.fetched += 1
        hang = HANGS.get(self.fetched)
        if hang is not None and hang.kind == "dataloader" and hang.is_own:
            reads_for_long(hang)
        return torch.zeros(WIDTH)


def reads_for_long(hang):
    hang.file("hung").touch()
    while not hang.is_released():
        time.sleep(0.2)


def falls_asleep(hang):
    hang.file("hung").touch()
    while not hang.is_released():
        time.sleep(0.2)


def writes_a_file():
    with (FOLDER / f"rank-{OWN}").open("wb") as file:
        file.write(b"x" * 4096)
        os.fsync(file.fileno())


def calls_another_collective(hang):
    if hang.is_own:
        hang.file("hung").touch()
        dist.barrier()
    else:
        dist.all_reduce(torch.ones(3))


def monitor():
    """Return NVRx's monitor of this rank; None under other launchers."""
    if os.environ.get("HANGING_RANKS_HEARTBEATS") != "nvrx":
        return None
    from nvidia_resiliency_ext.fault_tolerance import (  # noqa: PLC0415 - of one launcher
        RankMonitorClient,
    )

    client = RankMonitorClient()
    client.init_workload_monitoring()
    return client


def before(step):
    """Called before each step."""
    time.sleep(STEP_S)
    hang = next((one for at, one in HANGS.items() if at >= step), None)
    if hang is None:
        return
    if hang.pause_s and hang.is_own and step == hang.pause_step:
        time.sleep(hang.pause_s)  # as an evaluation or a checkpoint: the others wait
    if hang.is_own and step == hang.step - 2:
        hang.file("ready").write_text(str(os.getpid()), encoding="ascii")
    if hang.is_own and hang.kind in ("sigstop", "storage") and step == hang.step:
        waits_until_stopped(hang)
    elif hang.kind == "asleep" and hang.is_own and step == hang.step:
        falls_asleep(hang)
    elif hang.kind == "mismatch" and step == hang.step:
        calls_another_collective(hang)


def waits_until_stopped(hang):
    """Continue once the storage has stopped responding, or this process was stopped."""
    while not hang.file("hung").exists():
        time.sleep(0.01)
    if hang.kind == "storage":
        writes_a_file()


def after(step):
    if OWN == 0 and step % REPORTED == 0:
        for one in range(step - REPORTED, step):
            holdfast.training.step(one + 1)
    if OWN == 0 and not BEGAN.exists():
        BEGAN.touch()
    if MONITOR is not None:
        MONITOR.send_heartbeat()


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
        output_dir=str(FILE.parent / "out"), max_steps=90_000, per_device_train_batch_size=1,
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
    MONITOR = monitor()
    globals()[FRAMEWORK]()
