"""Loads of many damaged directories by a framework that has its own environment, or several ranks.

Scripts ``frameworks/load_*.py`` load all of them in one start of the framework, unless one of them
ends it, and report a digest of what they loaded on each rank.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from recorded import files_of, guarded, put_back, unpacked
from test_damage_table import changes

from holdfast.model.checkpoints import Depth
from holdfast.model.errors import BackendError
from tests.engines.framework_environments import environment_of
from tests.engines.matrix import Matrix
from tools.checkpoint_damage import RECORDINGS
from tools.matrix_results import LOADS_TABLE

SCRIPTS = Path(__file__).parent / "frameworks"


class Loader(NamedTuple):
    """How checkpoints are loaded."""

    script: str
    """Name of the script, without ``load_``."""

    environment: str | None
    """Its environment; None for that of the tests."""

    ranks: int
    recordings: tuple[str, ...]


class Case(NamedTuple):
    """A directory, the damage that it had, and the checkpoint that was chosen."""

    recording: str
    folder: Path
    damage: str
    chosen: str


Outcome = list[str] | None
"""Digest of what each rank loaded; None if the load failed."""


def undamaged(recording: str, good: Path, target: Path) -> list[Case]:
    """The directory as it was recorded, and without its newest checkpoint."""
    _, newest, before = RECORDINGS[recording]
    found = []
    for name in (newest, before):
        folder = target / f"whole-{name}" / good.name
        put_back(good, folder)
        if name == before:
            for file in files_of(folder, newest):
                file.unlink()
        chosen = guarded(folder, Depth.HASHES).choice.resume
        assert chosen is not None
        assert chosen.name == name
        found.append(Case(recording, folder, "", name))
    return found


def damaged(recording: str, good: Path, target: Path) -> list[Case]:
    """Damaged copies of the directory, each after the choice of the checkpoint."""
    _, newest, before = RECORDINGS[recording]
    found, now = [], target / "now" / good.name
    for damage in LOADS_TABLE.titles:
        for change in changes(good, now, damage, newest, before):
            put_back(good, now)
            change()
            kept = target / f"case-{len(found)}" / good.name
            kept.parent.mkdir()
            now.rename(kept)
            found.append(Case(recording, kept, damage, _chosen(kept)))
    return found


def _chosen(folder: Path) -> str:
    """Name of the checkpoint that is chosen; empty if a person has to choose."""
    try:
        one = guarded(folder, Depth.HASHES).choice.resume
    except BackendError:
        return ""
    return one.name if one is not None else ""


def loaded(loader: Loader, cases: Sequence[Case], folder: Path) -> list[Outcome]:
    """What the framework loaded from each directory."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(cases):
        rest, file = cases[len(outcomes) :], folder / f"outcomes-{len(outcomes)}"
        done = _started(loader, rest, file)
        lines = file.read_text().splitlines() if file.exists() else []
        assert outcomes or lines, done.stderr
        outcomes += [json.loads(line) for line in lines]
        outcomes += [None] if len(lines) < len(rest) else []
    return outcomes


def _started(loader: Loader, cases: Sequence[Case], file: Path) -> subprocess.CompletedProcess[str]:
    python = sys.executable
    if loader.environment is not None:
        python = str(environment_of(loader.environment) / "bin/python")
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={loader.ranks}"]
    script = str(SCRIPTS / f"load_{loader.script}.py")
    command = [python, *(launcher if loader.ranks else []), script, str(file)]
    lines = [json.dumps([one.recording, str(one.folder), one.chosen]) for one in cases]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, check=False, capture_output=True, encoding="utf-8", env=environment,
        input="\n".join(lines),
    )  # fmt: skip


def record_loads(loader: Loader, matrix: Matrix, folder: Path, others: Sequence[Case] = ()) -> None:
    """Load what is chosen after each kind of damage, and record the results.

    Args:
        loader: the framework and its recordings.
        matrix: for the results.
        folder: for the directories.
        others: more cases without damage, of which the chosen checkpoint must be loaded.

    """
    whole, cases = [], []
    for recording in loader.recordings:
        name, _, inside = recording.partition("/")
        good = unpacked(name, folder / "good" / name) / inside
        whole += undamaged(recording, good, folder / recording)
        cases += damaged(recording, good, folder / recording)
    chosen = [one for one in cases if one.chosen]
    every = [*whole, *others, *chosen]
    found = dict(zip(every, loaded(loader, every, folder), strict=True))
    saved = {(one.recording, one.chosen): found[one] for one in whole}
    assert len({json.dumps([one[0], found]) for one, found in saved.items()}) == len(saved)
    assert None not in saved.values()
    for one in others:
        assert found[one] == saved[one.recording, one.chosen], one
    counts: dict[tuple[str, str], Counter[str]] = {}
    for one in cases:
        count = counts.setdefault((one.damage, one.recording), Counter())
        if one.chosen:
            count.update(["chosen", _outcome(found[one], saved[one.recording, one.chosen])])
    for (damage, recording), count in counts.items():
        outcome = {key: count[key] for key in ("chosen", "loaded", "differs", "fails")}
        matrix.record(damage, recording, outcome, table=LOADS_TABLE)


def _outcome(found: Outcome, saved: Outcome) -> str:
    if found is None:
        return "fails"
    return "loaded" if found == saved else "differs"
