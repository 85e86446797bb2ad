"""PyTorch Lightning: ``.ckpt`` files of ``torch.save``, or DCP directories with ``meta.pt``.

On Slurm ``hpc_ckpt_N.ckpt`` takes precedence over all others; ``ckpt_path="last"`` loads the newest
``last*.ckpt``, and without one Lightning starts from the beginning.
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
    within,
)
from holdfast.adapters.checkpoints.dcp import directory_problems, is_dcp
from holdfast.adapters.checkpoints.links import link_pointer, repoint_links
from holdfast.adapters.checkpoints.own_steps import saved_step, step_problems
from holdfast.adapters.checkpoints.plain_files import Entry, listed, names_in
from holdfast.adapters.checkpoints.torch_file import file_problems, saved_number, saved_value
from holdfast.model.checkpoints import Checkpoint, Depth, PointerKind, Problem

_SUFFIX: Final = ".ckpt"
_META: Final = "meta.pt"
_VERSION: Final = "pytorch-lightning_version"
_SAVED: Final = saved_step("global_step")
_STEP: Final = re.compile(r"step=(\d{1,15})")
_HPC: Final = re.compile(r"hpc_ckpt_(\d{1,9})\.ckpt")
_LAST: Final = re.compile(r"last(-v?\d{1,9})?.*\.ckpt")


def find(folder: Path, names: Names) -> Found | None:  # noqa: ARG001 - a Find
    """See ``Find``."""
    entries = [
        entry
        for entry in names.values()
        if entry.name.endswith(_SUFFIX) and (entry.is_dir or entry.is_file)
    ]
    if not any(_has_format(entry) for entry in entries):
        return None
    pointer = link_pointer(names, {entry.name for entry in entries if not entry.is_link})
    own = [_candidate(entry) for entry in entries if not entry.is_link]
    if any(one.group == "hpc" for one in own):
        pointer = type(pointer)(kind=PointerKind.NONE)
    order = {"hpc": 2, "last": 1, "": 0}
    own.sort(key=lambda one: (order[one.group], _rank(one)), reverse=True)
    return Found(checkpoints=tuple(own), pointer=pointer)


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    steps = (step_of(path.name), step_of(older.name) if older is not None else None)
    if not path.is_dir():
        yield from file_problems(path, depth)
        yield from step_problems(path, older, steps, _SAVED)
        return
    names = listed(path)
    yield from directory_problems(path, names, depth, older)
    if _META in names:
        other = older / _META if older is not None else None
        problems = [
            *file_problems(path / _META, depth),
            *step_problems(path / _META, other, steps, _SAVED),
        ]
        yield from (within(f"{_META} ", one) for one in problems)
    else:
        yield incomplete(f"{_META}, which is written last, is missing")


def step_of(name: str) -> int | None:
    """Return the number after ``step=`` in a name; None if there is none."""
    number = _STEP.search(name)
    return int(number[1]) if number is not None else None


def _has_format(entry: Entry) -> bool:
    if entry.is_dir:
        inside = names_in(entry.path)
        return _META in inside or is_dcp(inside)
    return saved_value(entry.path, _VERSION) is not None


def _candidate(entry: Entry) -> Checkpoint:
    step = step_of(entry.name)
    is_ended = not entry.is_dir or (entry.path / _META).exists()
    group = "hpc" if _HPC.fullmatch(entry.name) else "last" if _LAST.fullmatch(entry.name) else ""
    file = entry.path / _META if entry.is_dir else entry.path
    step = step if step is not None else saved_number(file, "global_step")
    return candidate(entry, step, is_ended=is_ended, group=group)


def _rank(one: Checkpoint) -> tuple[float, str]:
    """Sort key: ``hpc_ckpt_N`` by N, ``last`` by time, others by step."""
    if one.group == "hpc":
        number = _HPC.fullmatch(one.name)
        return float(number[1] if number is not None else 0), one.name
    if one.group == "last":
        return one.changed_at.timestamp(), one.name
    return float(one.step if one.step is not None else -1), one.name


FORMAT: Final = CheckpointFormat(
    name="lightning",
    title="PyTorch Lightning",
    find=find,
    check=check,
    repoint=repoint_links,
    recognized_by="`*.ckpt` files with the key `pytorch-lightning_version`, or `*.ckpt` directories"
    " with `meta.pt` or DCP files",
    complete_when="file: as `torch.save`; directory: what DCP needs, and `meta.pt`",
    loads="`hpc_ckpt_N.ckpt` with the highest N; else the newest `last*.ckpt`, or what it links to;"
    " else the highest `step=`",
    not_detected="as `torch.save` and DCP; a file of another step whose name has no `step=`",
)
