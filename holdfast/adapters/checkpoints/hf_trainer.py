"""Hugging Face Trainer: ``checkpoint-<step>`` directories; the highest number is loaded.

``trainer_state.json`` of rank 0 is written last, but files of other ranks may follow it.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import (
    CannotVerify,
    CheckpointFormat,
    Found,
    Names,
    candidate,
    damaged,
    incomplete,
)
from holdfast.adapters.checkpoints.deepspeed import problems_within
from holdfast.adapters.checkpoints.pickles import Built, Pairs
from holdfast.adapters.checkpoints.plain_files import listed, names_in, read_object
from holdfast.adapters.checkpoints.state_files import fewer_files, files_problems, weights_in
from holdfast.adapters.checkpoints.torch_archive import InvalidTorchFile
from holdfast.adapters.checkpoints.torch_file import saved_object
from holdfast.model.checkpoints import Depth, Problem

_NAME: Final = re.compile(r"checkpoint-(\d{1,15})")
_STATE: Final = "trainer_state.json"
_SENTINEL: Final = "checkpoint-is-incomplete.txt"
"""Written by transformers 5 during a save at SIGTERM; its own search ignores the file."""

_ARGUMENTS: Final = "training_args.bin"
_RANDOM: Final = re.compile(r"rng_state(_\d{1,9})?\.pth")
_MOST: Final = 1 << 20
"""Maximum plausible number of ranks of a job."""

_SIGNS: Final = (_STATE, _ARGUMENTS, "optimizer.pt", "scheduler.pt", "config.json")


def find(folder: Path, names: Names) -> Found | None:  # noqa: ARG001 - a Find
    """See ``Find``."""
    rows, has_format = {}, False
    for entry in names.values():
        number = _NAME.fullmatch(entry.name)
        if number is not None and entry.is_dir:
            inside = names_in(entry.path)
            has_format = has_format or any(sign in inside for sign in _SIGNS)
            is_ended = _STATE in inside and _SENTINEL not in inside
            rows[int(number[1])] = candidate(entry, int(number[1]), is_ended=is_ended)
    if not has_format:
        return None
    return Found(checkpoints=tuple(rows[number] for number in sorted(rows, reverse=True)))


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    names = listed(path)
    if _SENTINEL in names:
        yield incomplete(f"{_SENTINEL} exists: the save did not complete")
    yield from _state_problems(path, names)
    if not weights_in(names):
        yield incomplete("model weights are missing")
    yield from files_problems(path, names, depth, older)
    yield from problems_within(names, depth)
    ranks = _ranks(path) if any(_RANDOM.fullmatch(name) for name in names) else None
    if ranks is not None:
        yield from _missing_ranks(names, ranks)
    yield from fewer_files(names, older, None if ranks is None else _RANDOM)


def _missing_ranks(names: Names, ranks: int) -> Iterator[Problem]:
    """Check that each rank has written its file: rank 0 does not wait for it."""
    every = range(ranks) if ranks > 1 else ()
    expected = [f"rng_state_{rank}.pth" for rank in every] or ["rng_state.pth"]
    missing = next((name for name in expected if name not in names), None)
    if missing is not None:
        yield incomplete(f"{missing} is missing, and {_ARGUMENTS} has {ranks} ranks")


def _ranks(path: Path) -> int | None:
    """Return the number of ranks that the arguments record; None if they do not."""
    with suppress(OSError, InvalidTorchFile, CannotVerify):
        value = saved_object(path / _ARGUMENTS)
        for key in ("distributed_state", "num_processes"):
            own = value.state if isinstance(value, Built) else None
            value = own.get(key) if isinstance(own, Pairs) else None
        return value if isinstance(value, int) and 0 < value <= _MOST else None
    return None


def _state_problems(path: Path, names: Names) -> Iterator[Problem]:
    if _STATE not in names:
        yield incomplete(f"{_STATE}, which is written last, is missing")
        return
    try:
        step = read_object(path / _STATE).get("global_step")
    except ValueError as error:
        unread = damaged if names[_STATE].size else incomplete
        yield unread(f"{_STATE} cannot be read: {error}")
        return
    number = _NAME.fullmatch(path.name)
    if number is not None and step != int(number[1]):
        yield damaged(f"{_STATE} has global_step {str(step)[:20]}")


FORMAT: Final = CheckpointFormat(
    name="hf-trainer",
    title="Hugging Face Trainer",
    find=find,
    check=check,
    recognized_by="directories `checkpoint-N` with `trainer_state.json`, `optimizer.pt` or such",
    complete_when="`trainer_state.json` is there and has the step of the name, all state files are"
    " whole, an index names files and tensors that are there, each rank that `training_args.bin`"
    " records has its file, and no other file is missing that the checkpoint before has",
    loads="the highest N",
    not_detected="changed bytes in a safetensors file: it has no checksum; damage of a file that a"
    " callback adds, unless `torch.save` wrote it",
)
