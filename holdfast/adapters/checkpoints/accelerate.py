"""Accelerate with automatic names: ``checkpoints/checkpoint_<n>``, where n counts saves.

``load_state()`` loads the entry with the highest first number in its name, whatever else the name
contains, and fails on an entry without a number: nothing else may be put into the directory.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import (
    CheckpointFormat,
    Found,
    Names,
    candidate,
    incomplete,
)
from holdfast.adapters.checkpoints.dcp import INDEX, ranks_in
from holdfast.adapters.checkpoints.deepspeed import problems_within, ranks_within
from holdfast.adapters.checkpoints.plain_files import listed, names_in
from holdfast.adapters.checkpoints.state_files import fewer_files, files_problems, weights_in
from holdfast.model.checkpoints import Checkpoint, Depth, Problem

_NAME: Final = re.compile(r"checkpoint_(\d{1,15}).*")
_INSIDE: Final = "checkpoints"
_FIRST: Final = "checkpoint_0"
_RANDOM: Final = re.compile(r"random_states_(\d{1,9})\.pkl")


def find(folder: Path, names: Names) -> Found | None:
    """See ``Find``. DIRECTORY may be the project's, or ``checkpoints`` in it."""
    found = _found(names, "", folder.name)
    if found is None and _INSIDE in names and names[_INSIDE].is_dir:
        found = _found(listed(names[_INSIDE].path), f"{_INSIDE}/", _INSIDE)
    return found


def _found(names: Names, prefix: str, inside: str) -> Found | None:
    rows: list[Checkpoint] = []
    has_format = False
    for entry in names.values():
        number = _NAME.fullmatch(entry.name)
        if number is not None and entry.is_dir:
            has_format = has_format or any(_RANDOM.fullmatch(one) for one in names_in(entry.path))
            name = f"{prefix}{entry.name}"
            rows.append(candidate(entry, int(number[1]), is_ended=True, name=name))
    has_format = has_format or (inside == _INSIDE and _is_first_save_cut_off(names, rows))
    rows.sort(key=lambda one: (one.step or 0, one.name), reverse=True)
    return Found(checkpoints=tuple(rows)) if has_format else None


def _is_first_save_cut_off(names: Names, rows: list[Checkpoint]) -> bool:
    """Return whether the first save wrote its weights and no state of random numbers, its last.

    A directory with weights alone would be a whole checkpoint of safetensors. Accelerate counts its
    saves from 0, in a directory of this name.
    """
    if len(rows) != 1 or rows[0].step != 0 or _FIRST not in names:
        return False
    return bool(weights_in(listed(names[_FIRST].path)))


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    names = listed(path)
    ranks = _ranks(names)
    if not ranks:
        yield incomplete("random_states_0.pkl is missing")
    elif len(ranks) <= max(ranks):
        missing = next(rank for rank in range(max(ranks)) if rank not in ranks)
        yield incomplete(f"random_states_{missing}.pkl is missing")
    if not weights_in(names):
        yield incomplete("model weights are missing")
    yield from files_problems(path, names, depth, older)
    yield from problems_within(names, depth)
    yield from fewer_files(names, older, _RANDOM if _is_resized(names, older) else None)


def _ranks(names: Names) -> frozenset[int]:
    return frozenset(int(found[1]) for name in names if (found := _RANDOM.fullmatch(name)))


def _is_resized(names: Names, older: Path | None) -> bool:
    """Return whether all ranks have saved, of whatever number before.

    A sharded state, which is saved before the random numbers, shows the ranks of the job: those
    that DeepSpeed records, or those with shards of FSDP beside an index, which is written once all
    have written theirs. In the older checkpoint, all ranks must have such shards, too: with
    replicas, only some may.
    """
    if older is None:
        return False
    before = listed(older)
    return all(_sharded(one) == {len(_ranks(one))} for one in (before, names))


def _sharded(names: Names) -> frozenset[int]:
    """Return the numbers of ranks that the sharded states in a checkpoint show."""
    folders = [names_in(entry.path) for entry in names.values() if entry.is_dir]
    return ranks_within(names) | {ranks_in(one) for one in folders if INDEX in one}


FORMAT: Final = CheckpointFormat(
    name="accelerate",
    title="Hugging Face Accelerate",
    find=find,
    check=check,
    is_strict=True,
    recognized_by="directories `checkpoint_N` with `random_states_R.pkl`, or"
    " `checkpoints/checkpoint_0` alone with weights",
    complete_when="all state files are whole, those of the ranks are counted from 0, and no file is"
    " missing that the checkpoint before has, except those of ranks that shards of FSDP or"
    " DeepSpeed show to be no longer in the job",
    loads="the highest first number in a name",
    not_detected="changed bytes in a safetensors file; files of the last ranks missing in the first"
    " checkpoint; damage of a file that the script adds, unless `torch.save` wrote it",
)
