"""Ray Train v2: directories ``checkpoint_<time>``, and a JSON file that lists the reported ones.

A checkpoint is listed once all workers have uploaded their files. Ray loads the one that the file
names as the latest result, and fails if a listed directory is missing.
"""

import json
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
from holdfast.adapters.checkpoints.plain_files import listed, read_object
from holdfast.adapters.checkpoints.state_trees import fewer_in_tree, files_in, tree_problems
from holdfast.kit.files import write_durably
from holdfast.model.checkpoints import Depth, Pointer, PointerKind, Problem

_SNAPSHOT: Final = "checkpoint_manager_snapshot.json"
_NAME: Final = re.compile(r"checkpoint_\d[\d_.-]{5,40}")
_RESULTS: Final = "checkpoint_results"
_LATEST: Final = "latest_checkpoint_result"
_DIRECTORY: Final = "checkpoint_dir_name"
_LISTS: Final = {
    _RESULTS: "checkpoint_report_indices",
    "pending_training_results": "pending_validation_specs",
    "validated_checkpoint_dir_names": "",
    "timed_out_validation_checkpoint_dir_names": "",
    "failed_validation_checkpoint_dir_names": "",
}
"""Lists of results or names, to a list with one item for each of them."""


def find(folder: Path, names: Names) -> Found | None:
    """See ``Find``. Names contain the time of the report, so their order is that of the saves."""
    if _SNAPSHOT not in names:
        return None
    try:
        snapshot = read_object(folder / _SNAPSHOT)
    except ValueError:
        snapshot = {}
    ended = _listed_names(snapshot)
    entries = [one for one in names.values() if one.is_dir and _NAME.fullmatch(one.name)]
    entries.sort(key=lambda one: one.name, reverse=True)
    rows = (candidate(one, None, is_ended=one.name in ended) for one in entries)
    return Found(checkpoints=tuple(rows), pointer=_pointer(snapshot))


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``. What is in a checkpoint is up to the script; state files are verified."""
    if not any(files_in(path)):
        yield incomplete("it has no file")
    try:
        is_committed = path.name in _listed_names(read_object(path.parent / _SNAPSHOT))
        is_unknown = False
    except ValueError:
        is_committed, is_unknown = False, True
    if not is_committed and not is_unknown:
        yield incomplete(f"{_SNAPSHOT} does not list it: not all workers have saved")
    yield from tree_problems(path, depth, older)
    yield from fewer_in_tree(path, older, is_committed=is_committed)


def repoint(folder: Path, name: str) -> None:
    """See ``Repoint``. Removes newer results and those without a directory from the list."""
    try:
        snapshot = read_object(folder / _SNAPSHOT)
    except ValueError as error:
        raise OSError(
            f"{_SNAPSHOT} cannot be read: {error}; resume from {name} in the script"
        ) from (error)
    present = listed(folder)
    results = _results(snapshot)
    latest = next((one for one in results if one[_DIRECTORY] == name), None)
    if latest is None:
        raise OSError(f"{_SNAPSHOT} does not list {name}, which Ray needs to load it")
    kept = {one for one in _listed_names(snapshot) if one in present and one <= name}
    changed = {**snapshot, _LATEST: latest}
    for key, parallel in _LISTS.items():
        changed |= _filtered(snapshot, key, parallel, kept)
    write_durably(folder / _SNAPSHOT, json.dumps(changed).encode())


def _filtered(
    snapshot: dict[str, object], key: str, parallel: str, kept: set[str]
) -> dict[str, object]:
    """Return a list of results or names without those not kept, and the list of equal length."""
    rows, others = snapshot.get(key), snapshot.get(parallel)
    if not isinstance(rows, list):
        return {}
    stays = [(one.get(_DIRECTORY) if isinstance(one, dict) else one) in kept for one in rows]
    changed: dict[str, object] = {
        key: [row for row, is_kept in zip(rows, stays, strict=True) if is_kept]
    }
    if isinstance(others, list) and len(others) == len(rows):
        changed[parallel] = [one for one, is_kept in zip(others, stays, strict=True) if is_kept]
    return changed


def _results(snapshot: dict[str, object]) -> list[dict[str, object]]:
    found = snapshot.get(_RESULTS)
    rows = found if isinstance(found, list) else []
    return [one for one in rows if isinstance(one, dict) and isinstance(one.get(_DIRECTORY), str)]


def _listed_names(snapshot: dict[str, object]) -> frozenset[str]:
    return frozenset(str(one[_DIRECTORY]) for one in _results(snapshot))


def _pointer(snapshot: dict[str, object]) -> Pointer:
    if not snapshot:
        return Pointer(kind=PointerKind.UNREADABLE, file=_SNAPSHOT)
    latest = snapshot.get(_LATEST)
    name = latest.get(_DIRECTORY) if isinstance(latest, dict) else None
    if not isinstance(name, str):
        return Pointer(kind=PointerKind.ABSENT, file=_SNAPSHOT)
    return Pointer(kind=PointerKind.NAMED, file=_SNAPSHOT, text=name[:80], name=name)


FORMAT: Final = CheckpointFormat(
    name="ray-train",
    title="Ray Train v2",
    find=find,
    check=check,
    repoint=repoint,
    recognized_by=f"`{_SNAPSHOT}`",
    complete_when=f"`{_SNAPSHOT}` lists it, each state file in it is whole, and none is missing"
    " that the checkpoint before has",
    loads=f"the latest result in `{_SNAPSHOT}`",
    not_detected="damage of files that are not of `torch.save`, DCP, safetensors or `.npz`; a file"
    " of another step; changed bytes in a safetensors file",
)
