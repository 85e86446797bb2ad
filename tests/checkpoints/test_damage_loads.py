"""The checkpoint that is chosen after damage is loaded by its real framework, as it was saved.

Results are compared with ``tests/checkpoint_loads.json``; ``make matrix`` records them.
"""

import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded import guarded, put_back, unpacked
from test_damage_table import changes

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.model.checkpoints import Depth
from tests.engines.matrix import Matrix
from tools.matrix_results import LOADS_TABLE

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks


def load_file(path: Path) -> Any:
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


def load_hf_trainer(path: Path) -> Any:
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - may be missing

    model, report = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    assert not report["missing_keys"]
    names = ("optimizer.pt", "scheduler.pt")
    return {"model": model.state_dict(), **{name: load_file(path / name) for name in names}}


def load_deepspeed(path: Path) -> Any:
    from deepspeed.utils import zero_to_fp32  # noqa: PLC0415 - may be missing

    return zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(str(path.parent), tag=path.name)


LOADERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "dcp/sync": ("torch", load_dcp),
    "dcp/async": ("torch", load_dcp),
    "torch_save/zip": ("torch", load_file),
    "torch_save/legacy": ("torch", load_file),
    "hf_trainer/one_file": ("transformers", load_hf_trainer),
    "hf_trainer/sharded": ("transformers", load_hf_trainer),
    "deepspeed/zero_1": ("deepspeed", load_deepspeed),
    "deepspeed/zero_3": ("deepspeed", load_deepspeed),
}


def is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
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
    module, load = LOADERS[recording]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
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
