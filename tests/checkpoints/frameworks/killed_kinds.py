"""Kinds of saves for ``killed_saves.py``: how a framework saves steps, and loads one.

Each is a function that imports its framework, once for all rounds.
"""

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from killed_kind import ITEMS, LAST, PARTS, Kind

torch.set_num_threads(1)


def state(step: int) -> dict[str, torch.Tensor]:
    return {f"part_{part}": torch.full((ITEMS,), float(step)) for part in range(PARTS)}


def filled(module: torch.nn.Module, step: int) -> None:
    for tensor in module.parameters():
        tensor.data.fill_(float(step))


def import_for_optimizers(name: str = "torch._dynamo") -> None:
    """Import what is not until there is an optimizer: else each process of a round would."""
    importlib.import_module(name)


def dcp() -> Kind:
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415 - see above

    def save(folder: Path) -> Iterator[int]:
        for step in range(1, LAST):
            dcp.save(state(step), checkpoint_id=folder / f"step_{step:04d}", no_dist=True)
            yield step

    def load(path: Path) -> Iterable[torch.Tensor]:
        loaded = state(0)
        dcp.load(loaded, checkpoint_id=path, no_dist=True)
        return loaded.values()

    return Kind(save, load)


def torch_save() -> Kind:
    def save(folder: Path) -> Iterator[int]:
        for step in range(1, LAST):
            torch.save(state(step), folder / f"step_{step:04d}.pt")
            yield step

    return Kind(save, lambda path: torch.load(path).values())


def safetensors() -> Kind:
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - see above

    def save(folder: Path) -> Iterator[int]:
        for step in range(1, LAST):
            save_file(state(step), folder / f"step_{step:04d}.safetensors")
            yield step

    return Kind(save, lambda path: load_file(path).values())


def lightning() -> Kind:
    import lightning  # noqa: PLC0415 - see above
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415 - see above

    class Tiny(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(256, 256)

        def training_step(self, batch, _):
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    class Filling(lightning.Callback):
        def on_train_batch_end(self, trainer, module, *_):
            filled(module, trainer.global_step)

    def save(folder: Path) -> Iterator[int]:
        saving = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
        trainer = lightning.Trainer(
            accelerator="cpu", devices=1, max_steps=LAST, logger=False,
            callbacks=[Filling(), saving],
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Tiny(), torch.utils.data.DataLoader(torch.zeros(LAST, 256)))
        yield LAST

    def load(path: Path) -> Iterable[torch.Tensor]:
        return Tiny.load_from_checkpoint(path).parameters()

    return Kind(save, load, longest=0.3)


def deepspeed() -> Kind:
    os.environ |= {"DS_ACCELERATOR": "cpu", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    import deepspeed  # noqa: PLC0415 - see above
    from deepspeed.utils import safe_get_full_fp32_param  # noqa: PLC0415 - see above

    import_for_optimizers("deepspeed.runtime.zero.muon.muon_optimizer")

    def prepared(store: Path) -> deepspeed.DeepSpeedEngine:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=0, world_size=1
        )
        model = torch.nn.Linear(256, 256)
        settings = {
            "train_micro_batch_size_per_gpu": 1,
            "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
            "zero_optimization": {"stage": 1},
            "bf16": {"enabled": True},
        }
        return deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=settings
        )[0]

    def save(folder: Path) -> Iterator[int]:
        engine = prepared(folder.with_name("store-save"))
        for step in range(1, LAST):
            for part in engine.optimizer.single_partition_of_fp32_groups:
                part.data.fill_(float(step))
            engine.save_checkpoint(str(folder), f"global_step{step}")
            yield step

    def load(path: Path) -> Iterable[torch.Tensor]:
        engine = prepared(path.parent.with_name("store-load"))
        loaded, _ = engine.load_checkpoint(str(path.parent))  # of the tag that `latest` names
        assert loaded is not None
        assert path.name in Path(loaded).parts
        return [safe_get_full_fp32_param(one) for one in engine.module.parameters()]

    return Kind(save, load, longest=0.3)


def hf_trainer() -> Kind:
    import transformers  # noqa: PLC0415 - see above
    from tqdm import tqdm  # noqa: PLC0415 - see above
    from transformers import LlamaForCausalLM, Trainer  # noqa: PLC0415 - see above
    from transformers.trainer_utils import get_last_checkpoint  # noqa: PLC0415 - see above

    import_for_optimizers()
    tqdm.set_lock(threading.RLock())  # a killed process would keep the one that all share
    sizes = dict.fromkeys(("num_hidden_layers", "num_attention_heads"), 1)
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=64, intermediate_size=64, tie_word_embeddings=False, **sizes
    )

    class Filling(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **_):
            filled(model, state.global_step)

    def save(folder: Path) -> Iterator[int]:
        arguments = transformers.TrainingArguments(
            output_dir=str(folder), max_steps=LAST, per_device_train_batch_size=1, use_cpu=True,
            report_to=[], save_strategy="steps", save_steps=1, disable_tqdm=True,
        )  # fmt: skip
        rows = [{"input_ids": one, "labels": one} for one in torch.zeros(LAST, 8).long()]
        Trainer(
            model=LlamaForCausalLM(config), args=arguments, train_dataset=rows,
            callbacks=[Filling()],
        ).train()  # fmt: skip
        yield LAST

    def load(path: Path) -> Iterable[torch.Tensor]:
        assert get_last_checkpoint(str(path.parent)) == str(path)
        for name in ("optimizer.pt", "scheduler.pt"):
            torch.load(path / name)
        torch.load(path / "rng_state.pth", weights_only=False)
        progress = transformers.TrainerState.load_from_json(str(path / "trainer_state.json"))
        assert path.name == f"checkpoint-{progress.global_step}"
        return LlamaForCausalLM.from_pretrained(path).parameters()

    return Kind(save, load, longest=0.3)


def accelerate() -> Kind:
    from accelerate import Accelerator  # noqa: PLC0415 - see above
    from accelerate.utils import ProjectConfiguration  # noqa: PLC0415 - see above

    import_for_optimizers()

    def prepared(folder: Path) -> tuple[Accelerator, torch.nn.Module]:
        project = ProjectConfiguration(
            project_dir=str(folder.parent), automatic_checkpoint_naming=True
        )
        own = Accelerator(cpu=True, project_config=project)
        model = torch.nn.Linear(256, 256)
        return own, own.prepare(model, torch.optim.AdamW(model.parameters()))[0]

    def save(folder: Path) -> Iterator[int]:
        own, model = prepared(folder)
        for step in range(LAST):
            filled(model, step)
            own.save_state()
            yield step

    def load(path: Path) -> Iterable[torch.Tensor]:
        own, model = prepared(path.parent)
        own.load_state(str(path))
        return model.parameters()

    return Kind(save, load, inside="checkpoints", longest=0.3)


KINDS: dict[str, Callable[[], Kind]] = {
    "dcp": dcp,
    "torch": torch_save,
    "safetensors": safetensors,
    "lightning": lightning,
    "deepspeed": deepspeed,
    "hf_trainer": hf_trainer,
    "accelerate": accelerate,
}
