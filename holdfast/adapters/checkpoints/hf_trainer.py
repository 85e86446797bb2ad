"""Hugging Face Trainer: ``checkpoint-<step>`` directories; the highest number is loaded.

``trainer_state.json`` of rank 0 is written last, but files of other ranks may follow it.
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
    damaged,
    incomplete,
)
from holdfast.adapters.checkpoints.deepspeed import problems_within
from holdfast.adapters.checkpoints.plain_files import listed, names_in, read_object
from holdfast.adapters.checkpoints.state_files import fewer_files, files_problems, weights_in
from holdfast.model.checkpoints import Depth, Problem

_NAME: Final = re.compile(r"checkpoint-(\d{1,15})")
_STATE: Final = "trainer_state.json"
_SENTINEL: Final = "checkpoint-is-incomplete.txt"
"""Written by transformers 5 during a save at SIGTERM; its own search ignores the file."""

_SIGNS: Final = (_STATE, "training_args.bin", "optimizer.pt", "scheduler.pt", "config.json")


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
    yield from fewer_files(names, older)


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
    " whole, an index names files and tensors that are there, and no file is missing that the"
    " checkpoint before has",
    loads="the highest N",
    not_detected="changed bytes in a safetensors file: it has no checksum; damage of a file that a"
    " callback adds, unless `torch.save` wrote it",
)
