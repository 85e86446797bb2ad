"""NeMo 2: directories with ``weights``, a Megatron-core checkpoint, and ``context``.

The empty file ``<name>-unfinished`` beside a directory exists while it is written or deleted. NeMo
resumes from the newest directory, or link to one, whose name ends with ``last``: by default a copy
of the checkpoint of the same step, and the only one. Without one it starts from the beginning.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints import megatron
from holdfast.adapters.checkpoints.contract import (
    CheckpointFormat,
    Found,
    Names,
    candidate,
    incomplete,
    within,
)
from holdfast.adapters.checkpoints.lightning import step_of
from holdfast.adapters.checkpoints.plain_files import listed, names_in
from holdfast.kit.files import sync_directory
from holdfast.model.checkpoints import Checkpoint, Depth, Pointer, PointerKind, Problem

_WEIGHTS: Final = "weights"
_CONTEXT: Final = "context"
_MARKER: Final = "-unfinished"
_LAST: Final = "last"

_LINK: Final = "-holdfast-last"
"""Suffix of the link through which NeMo loads a checkpoint that it would not load by its name."""

_STEP: Final = re.compile(r"--[^-]*-(\d{1,18})(?:-|$)")
"""In names such as ``llama--0.50-99-100.0``, without the names of the values."""


def find(folder: Path, names: Names) -> Found | None:
    """See ``Find``."""
    rows, has_format = [], False
    for entry in names.values():
        if not entry.is_dir or entry.is_link:
            continue
        inside = names_in(entry.path)
        is_marked = f"{entry.name}{_MARKER}" in names
        has_both = _WEIGHTS in inside and _CONTEXT in inside
        if has_both or (is_marked and inside <= {_WEIGHTS, _CONTEXT}):
            has_format = has_format or has_both
            is_ended = has_both and not is_marked
            rows.append(candidate(entry, _step(entry.name), is_ended=is_ended))
    if not has_format:
        return None
    has_steps = all(one.step is not None for one in rows)
    rows.sort(key=lambda one: _preference(one, has_steps=has_steps), reverse=True)
    return Found(checkpoints=tuple(rows), pointer=_pointer(folder, names))


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    if path.with_name(f"{path.name}{_MARKER}").exists():
        yield incomplete(f"{path.name}{_MARKER} exists: the save did not complete")
    names = listed(path)
    for part in (_WEIGHTS, _CONTEXT):
        if part not in names:
            yield incomplete(f"{part} is missing")
    if _WEIGHTS in names:
        before = older / _WEIGHTS if older is not None else None
        for problem in megatron.check(path / _WEIGHTS, depth, before):
            yield within(f"{_WEIGHTS}/", problem)


def repoint(folder: Path, name: str) -> None:
    """See ``Repoint``. Makes a link, as NeMo does with ``save_last="link"``: it is the newest."""
    link = folder / f"{name}{_LINK}"
    temporary = folder / f".{link.name}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(name)
    temporary.replace(link)
    for entry in listed(folder).values():
        if entry.is_link and entry.name.endswith(_LINK) and entry.path != link:
            entry.path.unlink()
    sync_directory(folder)


def _step(name: str) -> int | None:
    number = _STEP.search(name)
    return int(number[1]) if number is not None else step_of(name)


def _preference(one: Checkpoint, *, has_steps: bool) -> tuple[float, bool, float, str]:
    """Sort key: by step, or by time if not all have one; ``last`` before others of its step."""
    at, is_last = one.changed_at.timestamp(), one.name.endswith(_LAST)
    first = float(one.step) if has_steps and one.step is not None else at
    return first, is_last, at, one.name


def _pointer(folder: Path, names: Names) -> Pointer:
    """Return what NeMo resumes from: of a link, its own time counts and not that of its target."""
    lasts = [
        (entry.path.lstat().st_mtime, entry.path)
        for entry in names.values()
        if entry.is_dir and entry.name.endswith(_LAST) and f"{entry.name}{_MARKER}" not in names
    ]
    if not lasts:
        return Pointer(kind=PointerKind.ABSENT, file=f"*{_LAST}")
    _, path = max(lasts)
    target = path.resolve()
    name = target.name if target.parent == folder.resolve() else path.name
    kind, step = PointerKind.NAMED, _step(name)
    return Pointer(kind=kind, file=path.name, text=name[:80], name=name, step=step)


FORMAT: Final = CheckpointFormat(
    name="nemo",
    title="NeMo 2",
    find=find,
    check=check,
    repoint=repoint,
    recognized_by="directories with `weights` and `context`",
    complete_when="no `NAME-unfinished` exists, and `weights` is complete as of `megatron`",
    loads="the newest `*last`, or what it links to; without one, NeMo starts from the beginning",
    not_detected="as `megatron`; files of `context`",
)
