"""NeMo 2: directories with ``weights``, a Megatron-core checkpoint, and ``context``.

The empty file ``<name>-unfinished`` beside a directory exists while it is written or deleted. NeMo
resumes from the newest directory whose name ends with ``last``.
"""

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
from holdfast.adapters.checkpoints.plain_files import Entry, listed, names_in
from holdfast.model.checkpoints import Checkpoint, Depth, Problem

_WEIGHTS: Final = "weights"
_CONTEXT: Final = "context"
_MARKER: Final = "-unfinished"
_LAST: Final = "last"


def find(folder: Path, names: Names) -> Found | None:  # noqa: ARG001 - a Find
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
            rows.append(_candidate(entry, is_ended=has_both and not is_marked))
    if not has_format:
        return None
    rows.sort(key=_preference, reverse=True)
    return Found(checkpoints=tuple(rows))


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


def _candidate(entry: Entry, *, is_ended: bool) -> Checkpoint:
    group = _LAST if entry.name.endswith(_LAST) else ""
    return candidate(entry, step_of(entry.name), is_ended=is_ended, group=group)


def _preference(one: Checkpoint) -> tuple[bool, float, str]:
    """Sort key: ``last`` by time, others by step."""
    if one.group:
        return True, one.changed_at.timestamp(), one.name
    return False, float(one.step if one.step is not None else -1), one.name


FORMAT: Final = CheckpointFormat(
    name="nemo",
    title="NeMo 2",
    find=find,
    check=check,
    recognized_by="directories with `weights` and `context`",
    complete_when="no `NAME-unfinished` exists, and `weights` is complete as of `megatron`",
    loads="the newest `*last`; else the highest `step=`",
    not_detected="as `megatron`; files of `context`",
)
