"""The damage table: real checkpoints with one kind of damage, what is reported and chosen.

Results are compared with ``tests/checkpoint_damage.json``; ``make matrix`` records them.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from effort import some
from recorded import files_of, flip, guarded, keeping_times, put_back, unpacked, zero

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.model.checkpoints import Depth, PointerKind
from holdfast.model.errors import BackendError
from tests.engines.matrix import Matrix
from tools.checkpoint_damage import RECORDINGS
from tools.matrix_results import DAMAGE_TABLE

UNCHECKED = {"commit_success.txt", "config.json", "generation_config.json"}
"""Files that hold no state of the training."""

Change = Callable[[Path, Path], None]
"""Damages a file; the second path is that file in the checkpoint before."""

OF_FILES: dict[str, Change] = {
    "half": lambda path, _: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path, _: os.truncate(path, 0),
    "bit": lambda path, _: flip(path, path.stat().st_size // 2),
    "zeros": lambda path, _: zero(path, path.stat().st_size // 2 // 512 * 512, 512),
    "missing": lambda path, _: path.unlink(),
    "other-step": lambda path, before: shutil.copyfile(before, path),
}


def state_files(folder: Path, name: str) -> list[Path]:
    return [
        one for one in files_of(folder, name) if one.stat().st_size and one.name not in UNCHECKED
    ]


def outcome_of(folder: Path, newest: str, before: str) -> Counter[str]:
    """What is reported of the newest checkpoint, and which one is chosen."""
    found = Counter(tried=1)
    try:
        result = guarded(folder, Depth.HASHES)
    except BackendError:
        return found + Counter(none=1, reported=1)
    one = result.before.named(newest)
    chosen = result.choice.resume.name if result.choice.resume is not None else ""
    found[{newest: "newest", before: "before"}.get(chosen, "none")] += 1
    found["reported"] += one is None or one.is_broken or result.has_changes or not chosen
    return found


@pytest.mark.parametrize("recording", some(RECORDINGS))
def test_damage_is_reported_and_passed_over_as_recorded(
    tmp_path: Path, matrix: Matrix, recording: str
) -> None:
    name, _, inside = recording.partition("/")
    good = unpacked(name, tmp_path / "good") / inside
    folder = tmp_path / "run" / good.name
    _, newest, before = RECORDINGS[recording]
    for damage in DAMAGE_TABLE.titles:
        total: Counter[str] = Counter()
        for change in changes(good, folder, damage, newest, before):
            shutil.rmtree(tmp_path / "run", ignore_errors=True)
            put_back(good, folder)
            change()
            total += outcome_of(folder, newest, before)
        if total:
            keys = ("tried", "reported", "before", "newest", "none")
            matrix.record(damage, recording, {key: total[key] for key in keys}, table=DAMAGE_TABLE)


def changes(
    good: Path, folder: Path, damage: str, newest: str, before: str
) -> list[Callable[[], object]]:
    """The changes of one kind to a directory, one for each case."""
    files = state_files(good, newest)
    if damage in OF_FILES:
        pairs = [(one, partner(good, one, newest, before)) for one in files]
        return [
            partial(damaged, folder / one.relative_to(good), OF_FILES[damage], other)
            for one, other in pairs
            if other.exists() or damage != "other-step"
        ]
    if damage == "partial":
        rest = [folder / one.relative_to(good) for one in files[len(files) // 2 :]]
        return [lambda: [one.unlink() for one in rest]] if len(files) > 1 else []
    if damage == "rename":
        return lost_renames(folder / newest, good / newest)
    pointer = CheckpointDirectory(good).survey().pointer
    if pointer.kind is not PointerKind.NAMED:
        return []
    if damage == "stale":
        return [lambda: remove(folder / newest)]
    tracker, text = folder / pointer.file, b"" if damage == "no-tracker" else b"\0?"
    return [] if (good / pointer.file).is_symlink() else [lambda: tracker.write_bytes(text)]


def lost_renames(newest: Path, good: Path) -> list[Callable[[], object]]:
    """The rename that ends a save did not reach the storage: of DCP's index, Orbax's directory."""
    if (good / "_CHECKPOINT_METADATA").exists():
        partial_name = f"{newest.name}.orbax-checkpoint-tmp-1"
        return [lambda: newest.rename(newest.with_name(partial_name))]
    if (good / ".metadata").exists():
        index = newest / ".metadata"
        return [lambda: index.rename(index.with_name(".metadata.tmp"))]
    return []


def damaged(path: Path, change: Change, other: Path) -> None:
    keeping_times(path, lambda: change(path, other))


def partner(good: Path, file: Path, newest: str, before: str) -> Path:
    """The same file in the checkpoint before; data files of Orbax have other names there."""
    return good / str(file.relative_to(good)).replace(newest, before, 1)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
