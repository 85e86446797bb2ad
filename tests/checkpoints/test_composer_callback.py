"""The callback of Composer, with the events of a real Trainer."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from holdfast.adapters.checkpoints.save_reports import read_reports

EVENTS = Path(__file__).parents[1] / "recordings/composer-events/events.jsonl"


class Loss(float):
    """Stands for a tensor with one element."""

    def item(self) -> float:
        return float(self)


@pytest.fixture
def composer(monkeypatch):
    """The callback's module, with the two names of Composer that it imports."""
    core, utils = ModuleType("composer.core"), ModuleType("composer.utils")
    core.Callback = type("Callback", (), {})
    utils.dist = SimpleNamespace(rank=0)
    utils.dist.get_global_rank = lambda: utils.dist.rank
    for name, module in {"composer": ModuleType("composer"), "composer.core": core}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "composer.utils", utils)
    monkeypatch.delitem(sys.modules, "holdfast.training.composer", raising=False)
    yield importlib.import_module("holdfast.training.composer")
    del sys.modules["holdfast.training.composer"]


def replay(callback, folder: Path) -> None:
    for line in EVENTS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        savers = [
            SimpleNamespace(saved_checkpoints=[str(folder / name) for name in names])
            for names in row["saved"]
        ]
        state = SimpleNamespace(
            timestamp=SimpleNamespace(batch=row["batch"]),
            loss=None if row["loss"] is None else Loss(row["loss"]),
            callbacks=[callback, *savers],
        )
        if hasattr(callback, row["event"]):
            getattr(callback, row["event"])(state, None)


@pytest.mark.parametrize("rank", [0, 1])
def test_it_reports_batches_losses_and_saves_once(
    rank: int, composer, tmp_path: Path, monkeypatch
) -> None:
    folder, progress = tmp_path / "ckpt", tmp_path / "progress"
    folder.mkdir()
    progress.touch()
    monkeypatch.setenv("HOLDFAST_CHECKPOINT_DIR", str(folder))
    monkeypatch.setenv("HOLDFAST_PROGRESS_FILE", str(progress))
    monkeypatch.delenv("RANK", raising=False)
    composer.dist.rank = rank

    replay(composer.HoldfastCallback(loss_interval=4), folder)

    saves = {report.name: report.step for report in read_reports(folder).values()}
    expected = {"ep0-ba3-rank0.pt": 3, "ep1-ba6-rank0.pt": 6, "ep2-ba8-rank0.pt": 8}
    assert saves == ({} if rank else expected)
    lines = [line.split() for line in progress.read_text().splitlines()]
    assert [int(one[0]) for one in lines] == ([] if rank else list(range(9)))
    assert [int(one[0]) for one in lines if len(one) > 1] == ([] if rank else [4, 8])
    reports = folder.with_name(".ckpt.holdfast-reported")
    assert rank or len(reports.read_text().splitlines()) == 3


def test_an_interval_below_one_is_refused(composer) -> None:
    with pytest.raises(ValueError, match="loss_interval is 0; expected 1 or more"):
        composer.HoldfastCallback(loss_interval=0)
