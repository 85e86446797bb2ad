"""Orbax: directories ``<step>`` with ``_CHECKPOINT_METADATA`` and a directory for each item.

A save goes to ``<step>.orbax-checkpoint-tmp...``, which is renamed at its end; where the storage
cannot rename, ``commit_success.txt`` is written last instead. Orbax matches names exactly.
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
    within,
)
from holdfast.adapters.checkpoints.ocdbt import data_problems, manifest_problems, named_files
from holdfast.adapters.checkpoints.orbax_settings import (
    ARRAYS,
    TREE,
    changed_settings,
    settings_problems,
)
from holdfast.adapters.checkpoints.plain_files import (
    JSON_LIMIT,
    listed,
    names_in,
    read_bytes,
    read_object,
)
from holdfast.adapters.checkpoints.state_trees import files_in
from holdfast.model.checkpoints import Depth, Problem

_NAME: Final = re.compile(r"(?:[A-Za-z][\w-]{0,80}_)?(\d{1,15})")
_PARTIAL: Final = re.compile(rf"{_NAME.pattern}\.orbax-checkpoint-tmp.{{0,80}}")
_CONFIG: Final = "_CHECKPOINT_METADATA"
_COMMITTED: Final = "commit_success.txt"
_MANIFEST: Final = "manifest.ocdbt"
_DATA: Final = "d"
_PROCESS: Final = re.compile(r"ocdbt\.process_\d{1,9}")


def find(folder: Path, names: Names) -> Found | None:  # noqa: ARG001 - a Find
    """See ``Find``. Temporary directories are left out: Orbax ignores and removes them."""
    rows, has_format = {}, any(_PARTIAL.fullmatch(name) for name in names)
    for entry in names.values():
        number = _NAME.fullmatch(entry.name)
        if number is not None and entry.is_dir and not entry.is_link:
            inside = names_in(entry.path)
            has_format = has_format or _CONFIG in inside or _has_item(entry.path, inside)
            rows[int(number[1])] = candidate(entry, int(number[1]), is_ended=_CONFIG in inside)
    if not has_format:
        return None
    return Found(checkpoints=tuple(rows[number] for number in sorted(rows, reverse=True)))


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    names = listed(path)
    yield from _config_problems(path, names)
    items = [one for one in names.values() if one.is_dir and not one.is_link]
    if TREE in names:  # a checkpoint of a single item without a manager
        yield from _item_problems(path, names, depth)
    elif not items:
        yield incomplete("it has no item")
    for one in items if TREE not in names else ():
        for problem in _item_problems(one.path, listed(one.path), depth):
            yield within(f"{one.name}/", problem)
    yield from _missing_files(path, older)
    if older is not None and depth is Depth.HASHES:
        for name in ("", *(one.name for one in items)):
            for problem in changed_settings(path / name, older / name):
                yield within(f"{name}/" if name else "", problem)


def _has_item(path: Path, inside: frozenset[str]) -> bool:
    return TREE in inside or any(
        _MANIFEST in names_in(path / name) for name in inside if (path / name).is_dir()
    )


def _config_problems(path: Path, names: Names) -> Iterator[Problem]:
    if _CONFIG not in names:
        yield incomplete(f"{_CONFIG} is missing")
        return
    try:
        config = read_object(path / _CONFIG)
    except ValueError as error:
        unread = damaged if names[_CONFIG].size else incomplete
        yield unread(f"{_CONFIG} cannot be read: {error}")
        return
    if config.get("commit_timestamp_nsecs") is None and _COMMITTED not in names:
        yield incomplete(f"{_CONFIG} has no time of the commit: the save did not complete")


def _item_problems(path: Path, names: Names, depth: Depth) -> Iterator[Problem]:
    """Verify an item; one that is not of arrays, such as JSON, is a single file ``metadata``."""
    yield from _text_problems(names)
    if ARRAYS in names:
        for problem in _text_problems(listed(path / ARRAYS)):
            yield within(f"{ARRAYS}/", problem)
        if not names_in(path / ARRAYS):
            yield incomplete(f"{ARRAYS} is empty")
    if TREE in names:
        yield from settings_problems(path)
        yield from _metadata_problems(path, names)
    if _MANIFEST in names:
        yield from (within(f"{_MANIFEST} ", one) for one in manifest_problems(path / _MANIFEST))
        yield from _missing_data(path)
    elif _PROCESS.fullmatch(path.name):
        yield incomplete(f"{_MANIFEST} is missing")
    for entry in names.values():
        if entry.is_dir and _PROCESS.fullmatch(entry.name):
            yield from (
                within(f"{entry.name}/", one)
                for one in _item_problems(entry.path, listed(entry.path), depth)
            )
    if _DATA in names:
        for entry in listed(path / _DATA).values():
            problems = data_problems(entry.path, depth)
            yield from (within(f"{_DATA}/{entry.name} ", one) for one in problems)
    elif _MANIFEST in names:
        yield damaged(f"{_DATA}, the directory of the arrays, is missing")


def _missing_data(path: Path) -> Iterator[Problem]:
    """Check that the data files that a manifest names exist; a compressed name is not read."""
    present = names_in(path / _DATA)
    for name in sorted(named_files(path / _MANIFEST)):
        if name not in present:
            yield damaged(f"{_DATA}/{name} is missing, but {_MANIFEST} names it")


def _text_problems(names: Names) -> Iterator[Problem]:
    """Check that files that start as JSON objects are JSON."""
    for name, entry in names.items():
        if not entry.is_file or name == _COMMITTED:
            continue
        if entry.size == 0:
            yield incomplete(f"{name} is empty")
        elif entry.size <= JSON_LIMIT and read_bytes(entry.path, 1) == b"{":
            try:
                read_object(entry.path)
            except ValueError as error:
                yield damaged(f"{name} cannot be read: {error}")


def _metadata_problems(path: Path, names: Names) -> Iterator[Problem]:
    try:
        metadata = read_object(path / TREE)
    except ValueError:
        return  # was reported
    if metadata.get("use_ocdbt") is True and _MANIFEST not in names:
        yield damaged(f"{_MANIFEST} is missing")
    if metadata.get("use_ocdbt") is False and _MANIFEST in names:
        yield damaged(f"{TREE} states that {_MANIFEST} is not used")


def _missing_files(path: Path, older: Path | None) -> Iterator[Problem]:
    """Compare with the older checkpoint. The number of processes may change, and data files do."""
    if older is None:
        return
    own = {_fixed(name) for name, _ in files_in(path)}
    for name in dict.fromkeys(_fixed(name) for name, _ in files_in(older)):
        if name and name not in own:
            yield incomplete(f"{name[:80]} is missing, but {older.name} has it")


def _fixed(name: str) -> str:
    """Return the part of a path that is the same in each save; empty if there is none."""
    folder, _, last = name.rpartition("/")
    if last.startswith("process_"):
        return folder
    return "" if _DATA in name.split("/") or "process_" in name or name == _COMMITTED else name


FORMAT: Final = CheckpointFormat(
    name="orbax",
    title="Orbax",
    find=find,
    check=check,
    recognized_by=f"directories `STEP` with `{_CONFIG}` or items, or `*.orbax-checkpoint-tmp*`",
    complete_when=f"`{_CONFIG}` has the time of the commit, or `{_COMMITTED}` is there; of each"
    " item `_METADATA`, `_sharding`, `array_metadatas` and the manifest are valid and name the same"
    " arrays, and no part of a data file is cut off; no such file is missing that the checkpoint"
    " before has",
    loads="the highest step",
    not_detected="a data file that is missing among others, if its name in the manifest is"
    " compressed; a text file of another step; changed numbers in a text file; shardings on devices"
    " that this machine does not have; kinds of values and shardings of later releases; changed"
    " bytes in an array, with `hashes` too: only nodes of OCDBT have a checksum",
)
