"""Megatron-LM's own ``load_checkpoint`` loads what is chosen after damage, as it was saved.

Results are compared with ``tests/checkpoint_loads.json``; ``make matrix`` records them. All cases
are loaded in one start of Megatron-LM on two ranks, unless one of them ends it.
"""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from effort import is_quick
from recorded import guarded, put_back, unpacked
from test_damage_table import changes

from holdfast.adapters.checkpoints.megatron import TRACKER
from holdfast.model.checkpoints import Depth
from tests.engines.framework_environments import environment_of
from tests.engines.matrix import Matrix
from tools.checkpoint_damage import RECORDINGS
from tools.matrix_results import LOADS_TABLE

SCRIPT = Path(__file__).parent / "frameworks" / "load_megatron_lm.py"
KINDS = {
    "megatron_lm/torch_dist": "torch_dist",
    "megatron_lm/torch_dcp": "torch_dcp",
    "megatron_lm/torch": "torch",
}
"""Recording to the way in which the script loads it."""

NEWEST, BEFORE = RECORDINGS["megatron_lm/torch"][1:]

pytestmark = pytest.mark.frameworks


class Case(NamedTuple):
    """A directory, the damage that it had, and the checkpoint that was chosen."""

    recording: str
    folder: Path
    damage: str
    chosen: str


def unpacked_all(target: Path) -> dict[str, Path]:
    names = {recording.partition("/")[0] for recording in KINDS}
    folders = {name: unpacked(name, target / name) for name in names}
    pairs = {recording: recording.split("/") for recording in KINDS}
    return {recording: folders[name] / inside for recording, (name, inside) in pairs.items()}


def damaged(recording: str, good: Path, target: Path) -> list[Case]:
    """Damaged copies of a directory, each after the choice of the checkpoint."""
    found = []
    for damage in LOADS_TABLE.titles:
        for change in changes(good, target / "now", damage, NEWEST, BEFORE):
            put_back(good, target / "now")
            change()
            chosen = guarded(target / "now", Depth.HASHES).choice.resume
            assert chosen is not None, damage
            kept = target / f"case-{len(found)}"
            (target / "now").rename(kept)
            found.append(Case(recording, kept, damage, chosen.name))
    return found


def whole(recording: str, good: Path, target: Path) -> list[Case]:
    """An undamaged directory whose tracker names each of the two checkpoints."""
    found = []
    for name in (NEWEST, BEFORE):
        put_back(good, target / name)
        (target / name / TRACKER).write_text(name.removeprefix("iter_"))
        found.append(Case(recording, target / name, "", name))
    return found


def frequent(good: Path, target: Path) -> list[Case]:
    """The newest checkpoint is not persistent; it is whole, then damaged."""
    found = []
    for folder in (target / "frequent", target / "frequent-damaged"):
        put_back(good, folder)
        inside = folder / "non_persistent"
        inside.mkdir()
        (folder / NEWEST).rename(inside / NEWEST)
        for home, name in ((inside, NEWEST), (folder, BEFORE)):
            (home / TRACKER).write_text(name.removeprefix("iter_"))
        if found:
            os.truncate(next((inside / NEWEST).glob("*.distcp")), 100)
        chosen = guarded(folder, Depth.HASHES).choice.resume
        assert chosen is not None
        found.append(Case("megatron_lm/torch_dist", folder, "", Path(chosen.name).name))
    assert [one.chosen for one in found] == [NEWEST, BEFORE]
    return found


def loaded(cases: list[Case], folder: Path) -> list[object]:
    """What Megatron-LM made of each directory; None if it failed."""
    outcomes: list[object] = []
    while len(outcomes) < len(cases):
        rest, file = cases[len(outcomes) :], folder / f"outcomes-{len(outcomes)}"
        done = started(rest, file)
        lines = file.read_text().splitlines() if file.exists() else []
        assert outcomes or lines, done.stderr
        outcomes += [json.loads(line) for line in lines]
        outcomes += [None] if len(lines) < len(rest) else []
    return outcomes


def started(cases: list[Case], file: Path) -> subprocess.CompletedProcess[str]:
    python = str(environment_of("megatron_lm") / "bin/python")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    lines = "\n".join(f"{KINDS[one.recording]} {one.folder}" for one in cases)
    return subprocess.run(
        [python, *launcher, str(SCRIPT), str(file)], check=False, capture_output=True,
        encoding="utf-8", env=environment, input=lines,
    )  # fmt: skip


def outcome_of(found: object, saved: object) -> str:
    if found is None:
        return "fails"
    return "loaded" if found == saved else "differs"


if not is_quick():  # builds an environment

    def test_megatron_lm_loads_what_is_chosen_after_damage(tmp_path: Path, matrix: Matrix) -> None:
        pytest.importorskip("torch")  # the environments of frameworks have the same release
        good = unpacked_all(tmp_path / "good")
        cases = [one for pair in good.items() for one in whole(*pair, tmp_path / pair[0])]
        cases += [one for pair in good.items() for one in damaged(*pair, tmp_path / pair[0])]
        others = frequent(good["megatron_lm/torch_dist"], tmp_path)

        found = loaded([*cases, *others], tmp_path)

        saved = {
            (case.recording, case.chosen): one
            for case, one in zip(cases, found, strict=False)
            if not case.damage
        }
        assert len({json.dumps(one) for one in saved.values()}) == len(saved)
        counts: dict[tuple[str, str], Counter[str]] = {}
        for case, one in zip(others, found[len(cases) :], strict=True):
            assert one == saved[case.recording, case.chosen]
        for case, one in zip(cases, found, strict=False):
            if case.damage:
                count = counts.setdefault((case.damage, case.recording), Counter())
                count.update(["chosen", outcome_of(one, saved[case.recording, case.chosen])])
        for (damage, recording), count in counts.items():
            outcome = {key: count[key] for key in ("chosen", "loaded", "differs", "fails")}
            matrix.record(damage, recording, outcome, table=LOADS_TABLE)
