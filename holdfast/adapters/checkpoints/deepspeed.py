"""DeepSpeed: directories with files of all ranks, and ``latest``, which names the loaded one.

No file is written last, and ``latest`` is written before other ranks have completed their files.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import (
    CheckpointFormat,
    Found,
    Names,
    candidate,
    incomplete,
    within,
)
from holdfast.adapters.checkpoints.dcp import step_in
from holdfast.adapters.checkpoints.own_steps import saved_step, step_problems
from holdfast.adapters.checkpoints.pickles import Pairs
from holdfast.adapters.checkpoints.plain_files import listed, names_in, read_text
from holdfast.adapters.checkpoints.state_files import fewer_files
from holdfast.adapters.checkpoints.torch_archive import InvalidTorchFile
from holdfast.adapters.checkpoints.torch_file import file_problems, saved_object
from holdfast.kit.files import write_durably
from holdfast.model.checkpoints import Checkpoint, Depth, Pointer, PointerKind, Problem

_LATEST: Final = "latest"
_SAVED: Final = saved_step("global_steps")
_MOST: Final = 1 << 20
"""Maximum plausible number of ranks of a job."""

UNIVERSAL: Final = "_universal"
"""Suffix of converted checkpoints, which ``deepspeed_universal`` verifies."""

UNIVERSAL_LATEST: Final = "latest_universal"
_RANKS: Final = re.compile(
    r"(?P<kind>(?:bf16_|fp16_)?zero_pp_rank_(?P<data>\d{1,6})_mp_rank_(?P<model>\d{1,6})"
    r"_(?:model|optim)_states\.pt)|mp_rank_(?P<alone>\d{1,6})_model_states\.pt"
)
_STATES: Final = re.compile(r".*_(?:model|optim)_states\.pt")


def find(folder: Path, names: Names) -> Found | None:
    """See ``Find``."""
    rows: list[Checkpoint] = [
        candidate(entry, step_in(entry.name), is_ended=False)
        for entry in names.values()
        if entry.is_dir
        and not entry.name.endswith(UNIVERSAL)
        and any(_STATES.fullmatch(name) for name in names_in(entry.path))
    ]
    if not rows:
        return None
    rows.sort(
        key=lambda one: (one.step if one.step is not None else -1, one.changed_at), reverse=True
    )
    return Found(checkpoints=tuple(rows), pointer=tag_pointer(folder, names, _LATEST))


def tag_pointer(folder: Path, names: Names, file: str) -> Pointer:
    """Return what a file such as ``latest`` names.

    Raises:
        OSError: it cannot be read.

    """
    if file not in names:
        return Pointer(kind=PointerKind.ABSENT, file=file)
    tag = read_text(folder / file)
    if not tag or not tag.isprintable() or "/" in tag:
        return Pointer(kind=PointerKind.UNREADABLE, file=file, text=tag[:40])
    return Pointer(kind=PointerKind.NAMED, file=file, text=tag[:80], name=tag, step=step_in(tag))


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    names = listed(path)
    world = _world(path, names)
    yield from _missing_ranks(names, world)
    for entry in names.values():
        if entry.name.endswith(".pt") and not entry.is_dir:
            yield from (within(f"{entry.name} ", one) for one in file_problems(entry.path, depth))
    yield from fewer_files(names, older, _RANKS if world.datas else None)
    yield from model_step_problems(path, names, older)


def model_step_problems(path: Path, names: Names, older: Path | None) -> Iterator[Problem]:
    """Yield the problems of files of the model that hold another step than the tag."""
    if older is None:
        return
    steps = (step_in(path.name), step_in(older.name))
    for name in names:
        if name.endswith("_model_states.pt"):
            problems = step_problems(path / name, older / name, steps, _SAVED)
            yield from (within(f"{name} ", one) for one in problems)


def problems_within(names: Names, depth: Depth) -> Iterator[Problem]:
    """Yield the problems of DeepSpeed directories in a checkpoint of another framework."""
    for entry in names.values():
        if entry.is_dir and any(_STATES.fullmatch(name) for name in names_in(entry.path)):
            for problem in check(entry.path, depth, None):
                yield within(f"{entry.name}/", problem)


def ranks_within(names: Names) -> frozenset[int]:
    """Return the numbers of ranks that files of the model record in DeepSpeed directories."""
    tags = {entry.path: listed(entry.path) for entry in names.values() if entry.is_dir}
    worlds = [_world(path, inside) for path, inside in tags.items()]
    return frozenset(one.datas * one.models for one in worlds if one.datas * one.models)


def repoint(folder: Path, name: str) -> None:
    """See ``Repoint``."""
    universal = folder / UNIVERSAL_LATEST
    if universal.exists() and (folder / f"{name}{UNIVERSAL}").is_dir():
        write_durably(universal, f"{name}{UNIVERSAL}".encode())
    write_durably(folder / _LATEST, name.encode())


def _missing_ranks(names: Names, world: "_World") -> Iterator[Problem]:
    """Check that each kind of file exists for all data parallel by model parallel ranks."""
    kinds: dict[str, set[tuple[int, int]]] = {}
    for name in names:
        found = _RANKS.fullmatch(name)
        if found is not None:
            kind = re.sub(r"rank_\d+", "rank_N", name)
            ranks = (int(found["data"] or 0), int(found["model"] or found["alone"] or 0))
            kinds.setdefault(kind, set()).add(ranks)
    every = [rank for ranks in kinds.values() for rank in ranks]
    datas = max([world.datas, *(data + 1 for data, _ in every)])
    models = max([world.models, *(model + 1 for _, model in every)])
    for kind, present in sorted(kinds.items()):
        expected = models * (datas if "pp_rank" in kind else 1)
        if len(present) < expected:
            yield incomplete(f"{expected - len(present)} of {expected} files {kind} are missing")
    if not any("model_states" in name for name in names):
        yield incomplete("model files are missing")
    elif world.has_optimizer and not any("optim_states" in name for name in names):
        yield incomplete("optimizer files are missing")


@dataclass(frozen=True, slots=True)
class _World:
    """What a file of the model records."""

    datas: int = 0
    """Data parallel ranks; 0 if it does not record them."""

    models: int = 0
    has_optimizer: bool = False
    """Whether ZeRO is used."""


def _world(path: Path, names: Names) -> _World:
    for name in names:
        if _RANKS.fullmatch(name) and name.endswith("_model_states.pt"):
            with suppress(OSError, InvalidTorchFile):
                state = saved_object(path / name)
                if isinstance(state, Pairs):
                    sizes = (state.get(key) for key in ("dp_world_size", "mp_world_size"))
                    data, model = (one if isinstance(one, int) else 0 for one in sizes)
                    return _World(min(data, _MOST), min(model, _MOST), _zero_stage(state) > 0)
    return _World()


def _zero_stage(state: Pairs) -> int:
    value: object = state
    for key in ("ds_config", "zero_optimization", "stage"):
        value = value.get(key) if isinstance(value, Pairs) else None
    return value if isinstance(value, int) else 0


FORMAT: Final = CheckpointFormat(
    name="deepspeed",
    title="DeepSpeed",
    find=find,
    check=check,
    repoint=repoint,
    recognized_by="directories with `*_model_states.pt` or `*_optim_states.pt`",
    complete_when="the files of each kind exist for the number of ranks that a model file records,"
    " each is complete, and no other file of the previous checkpoint is missing",
    loads="what `latest` names",
    not_detected="a file of the optimizer of another step; in the first checkpoint, any file of"
    " another step",
)
