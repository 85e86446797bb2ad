"""NeuronX Distributed: directories with files of all ranks, ``checkpoint`` first and ``done`` last.

Without a tag, the directory with the newest ``done`` is loaded, not the one with the highest step.
"""

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
from holdfast.adapters.checkpoints.dcp import step_in
from holdfast.adapters.checkpoints.plain_files import Entry, listed
from holdfast.adapters.checkpoints.state_trees import fewer_in_tree, tree_problems
from holdfast.model.checkpoints import Depth, Problem

_FIRST: Final = "checkpoint"
_LAST: Final = "done"
_PARTS: Final = ("model", "optim", "scheduler.pt", "user_content.pt")


def find(folder: Path, names: Names) -> Found | None:  # noqa: ARG001 - a Find
    """See ``Find``. Tags without ``done`` come first: they are younger, or are being deleted."""
    tags: list[tuple[float, Entry, bool]] = []
    for entry in names.values():
        inside = listed(entry.path) if entry.is_dir and not entry.is_link else {}
        if _FIRST in inside and inside[_FIRST].is_file:
            if _LAST in inside:
                tags.append((inside[_LAST].changed_at, entry, True))
            elif len(inside) == 1 or any(part in inside for part in _PARTS):
                tags.append((float("inf"), entry, False))
    if not tags:
        return None
    tags.sort(key=lambda tag: (tag[0], tag[1].name), reverse=True)
    rows = (candidate(entry, step_in(entry.name), is_ended=done) for _, entry, done in tags)
    return Found(checkpoints=tuple(rows))


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    is_committed = _LAST in listed(path)
    if not is_committed:
        yield incomplete(f"{_LAST}, which is written last, is missing")
    yield from tree_problems(path, depth, older)
    yield from fewer_in_tree(path, older, is_committed=is_committed)


FORMAT: Final = CheckpointFormat(
    name="neuronx",
    title="NeuronX Distributed",
    find=find,
    check=check,
    recognized_by="directories with `checkpoint` and `done`, `model` or `optim`",
    complete_when="`done` is there, each state file is whole, and as many files of each kind are"
    " there as in the checkpoint before",
    loads="the one with the newest `done`",
    not_detected="files of ranks missing in the first checkpoint; a file of another step",
)
