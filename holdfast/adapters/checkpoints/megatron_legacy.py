"""Megatron's legacy format: a directory ``mp_rank_TT[_PPP][_EEE]`` for each model parallel rank.

TT, PPP and EEE are the tensor, pipeline and expert rank; the latter two are left out if there is
one. No file is written last. The arguments of the job are saved in each model file.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import incomplete, within
from holdfast.adapters.checkpoints.pickles import Built, Pairs
from holdfast.adapters.checkpoints.plain_files import listed
from holdfast.adapters.checkpoints.torch_file import file_problems, saved_value
from holdfast.model.checkpoints import Depth, Problem

MODELS: Final = ("model_optim_rng.pt", "model_rng.pt")
"""Names of the model file of a rank."""

RANK: Final = re.compile(r"mp_rank_(\d{1,6})(?:_(\d{1,6}))?(?:_(\d{1,6}))?")
_OF_DATA_RANK: Final = re.compile(r"layer_wise_optimizer_(\d{1,9})\.pt")
_MOST: Final = 1 << 16
"""Maximum plausible number of model parallel ranks of a job."""


@dataclass(frozen=True, slots=True)
class _World:
    """Ranks of a job, as the arguments in a model file record them."""

    ranks: frozenset[str]
    """Names of the directories."""

    datas: int | None
    """Data parallel ranks; None if they are not recorded."""


def legacy_problems(
    path: Path, ranks: list[str], depth: Depth, older: Path | None
) -> Iterator[Problem]:
    """Yield the problems of a checkpoint with the directories ``ranks``; see ``Check``."""
    world = _world(path, ranks)
    yield from _missing_ranks(ranks, world)
    yield from _rank_problems(path, ranks, depth)
    yield from _fewer_files(path, ranks, older, world)


def _world(path: Path, ranks: list[str]) -> _World | None:
    """Return the recorded ranks; None without a record.

    If experts are split over other tensor ranks than the rest, not each tensor rank has a directory
    for each expert rank.
    """
    files = (path / rank / name for rank in ranks for name in MODELS)
    for value in (saved_value(file, "args") for file in files if file.is_file()):
        state = value.state if isinstance(value, Built) else None
        if not isinstance(state, Pairs):
            continue
        axes = [
            _count(state, f"{axis}_model_parallel_size")
            for axis in ("tensor", "pipeline", "expert")
        ]
        sizes = [axis for axis in axes if axis is not None]
        experts = _count(state, "expert_tensor_parallel_size")
        if len(sizes) < len(axes) or prod(sizes) > _MOST or experts not in (None, sizes[0]):
            return None
        names = product(*(range(one) for one in sizes))
        return _World(
            frozenset(_name(sizes, own) for own in names), _count(state, "data_parallel_size")
        )
    return None


def _count(state: Pairs, key: str) -> int | None:
    value = state.get(key)
    return value if isinstance(value, int) and value > 0 else None


def _name(sizes: list[int], own: tuple[int, ...]) -> str:
    later = "".join(
        f"_{rank:03d}" for size, rank in zip(sizes[1:], own[1:], strict=True) if size > 1
    )
    return f"mp_rank_{own[0]:02d}{later}"


def _missing_ranks(names: list[str], world: _World | None) -> Iterator[Problem]:
    """Check that all recorded ranks are there; else that ranks count from 0 and form a grid."""
    if world is not None:
        expected, missing = len(world.ranks), len(world.ranks.difference(names))
    else:
        found = {
            tuple(int(one) for one in match.groups() if one)
            for name in names
            if (match := RANK.fullmatch(name))
        }
        expected = prod(max(axis) + 1 for axis in zip(*found, strict=False))
        missing = expected - len(found)
    if missing > 0:
        yield incomplete(f"{missing} of {expected} ranks are missing")


def _rank_problems(path: Path, ranks: list[str], depth: Depth) -> Iterator[Problem]:
    kinds: dict[str, set[str]] = {}
    for rank in sorted(ranks):
        files = [one for one in listed(path / rank).values() if one.name.endswith(".pt")]
        kinds[rank] = {re.sub(r"\d+", "N", one.name) for one in files}
        if not files:
            yield incomplete(f"{rank} has no .pt file")
        for one in files:
            for problem in file_problems(one.path, depth):
                yield within(f"{rank}/{one.name} ", problem)
    every = set().union(*kinds.values())
    for rank, own in kinds.items():
        if own and own != every:
            yield incomplete(f"{rank}/{min(every - own)} is missing, but other ranks have it")


def _fewer_files(
    path: Path, ranks: list[str], older: Path | None, world: _World | None
) -> Iterator[Problem]:
    """Compare with the older checkpoint: all saves write the same, except for fewer ranks."""
    if older is None:
        return
    for rank, entry in listed(older).items():
        is_of_job = world is None or rank in world.ranks
        if RANK.fullmatch(rank) and entry.is_dir and is_of_job:
            own = {one.name for one in listed(path / rank).values()}
            names = {
                name
                for name in listed(entry.path)
                if name.endswith(".pt") and not _is_of_no_rank(name, world)
            }
            if rank not in ranks or names - own:
                name = rank if rank not in ranks else f"{rank}/{min(names - own)}"
                yield incomplete(f"{name} is missing, but {older.name} has it")


def _is_of_no_rank(name: str, world: _World | None) -> bool:
    """Return whether a file is of a data parallel rank that the job does not have."""
    number = _OF_DATA_RANK.fullmatch(name)
    if number is None or world is None or world.datas is None:
        return False
    return int(number[1]) >= world.datas
