"""DLRover's flash checkpoint: ``dlrover_latest.txt`` beside checkpoints of another framework.

Without a framework, as for DDP, they are directories ``<step>`` with ``rank_<R>.pt``. The tracker
is written once all shards are on the storage. For Megatron-LM and DeepSpeed, DLRover writes the
tracker of the framework, too.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints import dcp_directories, deepspeed, megatron, torch_save
from holdfast.adapters.checkpoints.contract import (
    CheckpointFormat,
    Found,
    Names,
    candidate,
    incomplete,
)
from holdfast.adapters.checkpoints.plain_files import listed, names_in, read_text
from holdfast.adapters.checkpoints.state_files import fewer_files, files_problems
from holdfast.kit.files import write_durably
from holdfast.model.checkpoints import Checkpoint, Depth, Pointer, PointerKind, Problem

_TRACKER: Final = "dlrover_latest.txt"
_STEP: Final = re.compile(r"\d{1,15}")
_RANK: Final = re.compile(r"rank_(\d{1,9})\.pt")


def find(folder: Path, names: Names) -> Found | None:
    """See ``Find``. The tracker of the framework, where it has one, decides what is loaded."""
    inner = _inner(folder, names) if _TRACKER in names else None
    if inner is None:
        return None
    found = inner[1]
    if inner[0].repoint is not None and found.pointer.kind is not PointerKind.NONE:
        return found
    return Found(checkpoints=found.checkpoints, pointer=_pointer(folder, found.checkpoints))


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    inner = _inner(path.parent, listed(path.parent))
    if inner is not None:
        yield from inner[0].check(path, depth, older)


def repoint(folder: Path, name: str) -> None:
    """See ``Repoint``. Sets both trackers."""
    inner = _inner(folder, listed(folder))
    rows = inner[1].checkpoints if inner is not None else ()
    step = next((one.step for one in rows if one.name == name), None)
    if inner is None or step is None:
        raise OSError(f"{name} has no step, which {_TRACKER} names")
    if inner[0].repoint is not None:
        inner[0].repoint(folder, name)
    write_durably(folder / _TRACKER, str(step).encode())


def _inner(folder: Path, names: Names) -> tuple[CheckpointFormat, Found] | None:
    for row in _INNER:
        found = row.find(folder, names)
        if found is not None and (found.checkpoints or found.pointer.kind is PointerKind.NAMED):
            return row, found
    return None


def _pointer(folder: Path, rows: tuple[Checkpoint, ...]) -> Pointer:
    text = read_text(folder / _TRACKER)
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        return Pointer(kind=PointerKind.UNREADABLE, file=_TRACKER, text=text[:40])
    step = int(text)
    name = next((one.name for one in rows if one.step == step), text)
    return Pointer(kind=PointerKind.NAMED, file=_TRACKER, text=text, name=name, step=step)


def _find_steps(folder: Path, names: Names) -> Found | None:  # noqa: ARG001 - a Find
    rows: list[Checkpoint] = []
    for entry in names.values():
        if _STEP.fullmatch(entry.name) and entry.is_dir and not entry.is_link:
            inside = names_in(entry.path)
            if not inside or any(_RANK.fullmatch(name) for name in inside):
                rows.append(candidate(entry, int(entry.name), is_ended=bool(inside)))
    rows.sort(key=lambda one: one.step or 0, reverse=True)
    return Found(checkpoints=tuple(rows)) if any(one.is_ended for one in rows) else None


def _check_step(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    names = listed(path)
    ranks = {int(found[1]) for name in names if (found := _RANK.fullmatch(name))}
    missing = next((rank for rank in range(max(ranks, default=0) + 1) if rank not in ranks), None)
    if missing is not None:
        yield incomplete(f"rank_{missing}.pt is missing")
    yield from files_problems(path, names, depth, older)
    yield from fewer_files(names, older)


_STEPS: Final = CheckpointFormat(
    name="dlrover-steps",
    title="DLRover without a framework",
    find=_find_steps,
    check=_check_step,
    recognized_by="directories `STEP` with `rank_R.pt`",
    complete_when="the files of all ranks are whole",
    loads="what the tracker names",
    not_detected="as `torch-save`; damage of files of other kinds",
)
_INNER: Final = (
    megatron.FORMAT,
    deepspeed.FORMAT,
    _STEPS,
    dcp_directories.FORMAT,
    torch_save.FORMAT,
)
"""Formats beside the tracker, in the order of detection."""

FORMAT: Final = CheckpointFormat(
    name="dlrover",
    title="DLRover flash checkpoint",
    find=find,
    check=check,
    repoint=repoint,
    recognized_by=f"`{_TRACKER}` beside directories `STEP` with `rank_R.pt`, or checkpoints"
    " of `megatron`, `deepspeed`, `dcp` or `torch-save`",
    complete_when="the files of all ranks are whole, and none is missing that the checkpoint before"
    " has; else as in the format of the checkpoint",
    loads=f"what the framework's tracker names, else `{_TRACKER}`; a newer one in the shared memory"
    " of a node comes first",
    not_detected="as in the format of the checkpoint; of FSDP, changed bytes of a tensor, which"
    " DLRover writes without a checksum",
)
