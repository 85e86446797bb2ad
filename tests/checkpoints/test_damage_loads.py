"""The checkpoint that is chosen after damage is loaded by its real framework, as it was saved.

Results are compared with ``tests/checkpoint_loads.json``; ``make matrix`` records them.
"""

import copy
import importlib.util
import os
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from recorded import guarded, put_back, unpacked
from test_damage_table import changes

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.model.checkpoints import Depth
from tests.engines.matrix import Matrix
from tests.engines.ports import free_port
from tools.matrix_results import LOADS_TABLE

pytestmark = pytest.mark.frameworks


def load_file(path: Path) -> Any:
    import torch  # noqa: PLC0415 - slow, and each process of a test run imports this file

    return torch.load(path, map_location="cpu", weights_only=False)


def load_dcp(path: Path) -> Any:
    from torch.distributed.checkpoint.api import CheckpointException  # noqa: PLC0415 - see below
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # noqa: PLC0415 - slow

    whole = path.parent.parent / "whole.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            dcp_to_torch_save(path, whole)
        except CheckpointException as error:  # a BaseException
            raise RuntimeError(str(error)) from error
    return load_file(whole)


def load_fsspec(path: Path) -> Any:
    """As ``dcp_to_torch_save``, with the reader of fsspec."""
    from torch.distributed.checkpoint.api import CheckpointException  # noqa: PLC0415 - slow
    from torch.distributed.checkpoint.default_planner import (  # noqa: PLC0415 - slow
        _EmptyStateDictLoadPlanner,
    )
    from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader  # noqa: PLC0415 - slow
    from torch.distributed.checkpoint.state_dict_loader import (  # noqa: PLC0415 - slow
        _load_state_dict,
    )

    found: dict[str, Any] = {}
    reader, planner = FsspecReader(f"file://{path}"), _EmptyStateDictLoadPlanner()
    try:
        _load_state_dict(found, storage_reader=reader, planner=planner, no_dist=True)
    except CheckpointException as error:  # a BaseException
        raise RuntimeError(str(error)) from error
    return found


def load_hf_trainer(path: Path) -> Any:
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - may be missing

    model, report = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    assert not report["missing_keys"]
    names = ("optimizer.pt", "scheduler.pt")
    return {"model": model.state_dict(), **{name: load_file(path / name) for name in names}}


def load_deepspeed(path: Path) -> Any:
    from deepspeed.utils import zero_to_fp32  # noqa: PLC0415 - may be missing

    return zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(str(path.parent), tag=path.name)


def load_accelerate(path: Path) -> Any:
    import torch  # noqa: PLC0415 - slow
    from accelerate import Accelerator  # noqa: PLC0415 - may be missing

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    rows = torch.utils.data.DataLoader(torch.zeros(16, 8), batch_size=2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    prepared = accelerator.prepare(model, optimizer, rows, schedule)
    accelerator.load_state(str(path))
    return [prepared[0].state_dict(), prepared[1].state_dict(), prepared[3].state_dict()]


def load_lightning_sharded(path: Path) -> Any:
    from lightning.fabric.utilities.load import (  # noqa: PLC0415 - may be missing
        _load_distributed_checkpoint,
    )

    try:
        return _load_distributed_checkpoint(path)
    except BaseException as error:  # CheckpointException of torch
        raise RuntimeError(str(error)) from error


def load_ranks(path: Path) -> Any:
    return {str(one.relative_to(path)): load_file(one) for one in sorted(path.rglob("*.pt"))}


@cache
def universal_engine() -> Any:
    import deepspeed  # noqa: PLC0415 - may be missing
    import torch  # noqa: PLC0415 - slow

    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
        "bf16": {"enabled": True},
        "checkpoint": {"load_universal": True},
    }
    model = torch.nn.Linear(8, 8)
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)[
        0
    ]


def load_deepspeed_universal(path: Path) -> Any:
    engine = universal_engine()
    loaded, _ = engine.load_checkpoint(str(path.parent), tag=path.name)
    assert loaded is not None
    return copy.deepcopy([engine.module.state_dict(), engine.optimizer.optimizer.state_dict()])


def load_orbax(path: Path) -> Any:
    import orbax.checkpoint as ocp  # noqa: PLC0415 - may be missing

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ocp.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(path / "default")


LOADERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "dcp/sync": ("torch", load_dcp),
    "dcp/async": ("torch", load_dcp),
    "dcp/fsspec": ("torch", load_fsspec),
    "megatron/torch_dcp": ("torch", load_dcp),
    "megatron/legacy": ("torch", load_ranks),
    "torchtitan/disabled": ("torch", load_dcp),
    "torchtitan/async": ("torch", load_dcp),
    "dlrover/ddp": ("torch", load_ranks),
    "dlrover_agents/megatron": ("torch", load_ranks),
    "accelerate/checkpoints": ("accelerate", load_accelerate),
    "lightning/sharded": ("lightning", load_lightning_sharded),
    "composer/files": ("torch", load_file),
    "composer_sharded/sharded": ("torch", load_dcp),
    "deepspeed_universal/universal": ("deepspeed", load_deepspeed_universal),
    "torch_save/zip": ("torch", load_file),
    "torch_save/legacy": ("torch", load_file),
    "hf_trainer/one_file": ("transformers", load_hf_trainer),
    "hf_trainer/sharded": ("transformers", load_hf_trainer),
    "deepspeed/zero_1": ("deepspeed", load_deepspeed),
    "deepspeed/zero_3": ("deepspeed", load_deepspeed),
}


if importlib.util.find_spec("orbax") is not None:  # 600 MB with JAX, not in `make frameworks`
    LOADERS["orbax/one_item"] = ("orbax", load_orbax)


def is_equal(one: Any, other: Any) -> bool:
    import torch  # noqa: PLC0415 - slow

    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if hasattr(one, "tolist"):  # an array of NumPy
        return type(one) is type(other) and bool(one.tolist() == other.tolist())
    return bool(one == other)


def outcome_of(load: Callable[[Path], Any], path: Path, saved: Any) -> str:
    try:
        found = load(path)
    except Exception:  # noqa: BLE001 - whatever the framework raises
        return "fails"
    return "loaded" if is_equal(found, saved) else "differs"


@pytest.mark.parametrize("recording", LOADERS)
def test_the_framework_loads_what_is_chosen_after_damage(
    tmp_path: Path, matrix: Matrix, recording: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    module, load = LOADERS[recording]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    for variable, value in {**one_rank, "MASTER_PORT": str(free_port())}.items():
        if module == "deepspeed":
            monkeypatch.setenv(variable, value)
    pytest.importorskip(module)
    name, _, inside = recording.partition("/")
    good = unpacked(name, tmp_path / "good") / inside
    folder = tmp_path / "run" / good.name
    survey = CheckpointDirectory(good).survey()
    newest, before = (one.name for one in survey.checkpoints[:2])
    saved = {each: load(good / each) for each in (newest, before)}
    for damage in LOADS_TABLE.titles:
        found: Counter[str] = Counter()
        for change in changes(good, folder, damage, newest, before):
            shutil.rmtree(tmp_path / "run", ignore_errors=True)
            put_back(good, folder)
            change()
            chosen = guarded(folder, Depth.HASHES).choice.resume
            found["chosen"] += chosen is not None
            if chosen is not None:
                found[outcome_of(load, folder / chosen.name, saved[chosen.name])] += 1
        if found:
            outcome = {key: found[key] for key in ("chosen", "loaded", "differs", "fails")}
            matrix.record(damage, recording, outcome, table=LOADS_TABLE)
