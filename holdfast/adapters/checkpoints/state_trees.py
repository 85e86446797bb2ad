"""Verifies the state files in nested directories, for formats that keep files of ranks in them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import CannotVerify, incomplete, within
from holdfast.adapters.checkpoints.dcp import directory_problems, is_dcp
from holdfast.adapters.checkpoints.plain_files import Entry, listed
from holdfast.adapters.checkpoints.state_files import files_problems
from holdfast.model.checkpoints import Depth, Problem

_LEVELS: Final = 8
"""Maximum nesting. The deepest known layout, of NeuronX, has three levels."""

_NUMBER: Final = re.compile(r"\d+")


def tree_problems(
    path: Path, depth: Depth, older: Path | None, levels: int = _LEVELS
) -> Iterator[Problem]:
    """Yield the problems of the state files in a directory and in those within.

    Raises:
        OSError: a directory or file cannot be read.
        CannotVerify: directories are nested too deeply.

    """
    if levels == 0:
        raise CannotVerify(f"directories are nested deeper than {_LEVELS} levels")
    names = listed(path)
    if is_dcp(names):
        yield from directory_problems(path, names, depth)
    yield from files_problems(path, names, depth, older)
    for entry in names.values():
        if entry.is_dir and not entry.is_link and not is_dcp(listed(entry.path)):
            before = older / entry.name if older is not None else None
            for problem in tree_problems(entry.path, depth, before, levels - 1):
                yield within(f"{entry.name}/", problem)


def fewer_in_tree(
    path: Path, older: Path | None, *, is_committed: bool = False
) -> Iterator[Problem]:
    """Compare the numbers of files of each kind with the older checkpoint; digits may differ.

    Args:
        path: the checkpoint.
        older: the older one.
        is_committed: whether the framework has recorded that all ranks have saved. Only then can
            there be fewer ranks than before: else the last ranks may not have saved yet.

    """
    if older is None:
        return
    own, expected = _kinds(path), _kinds(older)
    resized = _resized(own, expected) if is_committed else frozenset()
    for kind, numbers in sorted(expected.items()):
        count, left = len(numbers), len(own.get(kind, ()))
        if left < count and kind not in resized:
            missing = f"{count - left} of {count} files {kind[:80]} are missing"
            yield incomplete(f"{missing}, but {older.name} has them")


_Numbers = frozenset[tuple[int, ...]]
"""The numbers in the names of all files of one kind."""


def _kinds(path: Path) -> dict[str, _Numbers]:
    found: dict[str, set[tuple[int, ...]]] = {}
    for name, _ in files_in(path):
        numbers = tuple(int(one[:18]) for one in _NUMBER.findall(name))
        found.setdefault(_NUMBER.sub("N", name), set()).add(numbers)
    return {kind: frozenset(numbers) for kind, numbers in found.items()}


def _resized(own: dict[str, _Numbers], expected: dict[str, _Numbers]) -> frozenset[str]:
    """Return the kinds of files that exist for all of fewer ranks.

    They are numbered from 0 without a gap, and several kinds had the same numbers before and have
    the same ones now. A single kind proves nothing: a file of its last rank may have been lost.
    """
    groups: dict[_Numbers, list[str]] = {}
    for kind, numbers in expected.items():
        groups.setdefault(numbers, []).append(kind)
    return frozenset(
        kind
        for numbers, kinds in groups.items()
        if len(numbers) > 1 and len(kinds) > 1
        for kind in kinds
        if kind in own and _is_grid(own[kind]) and all(own.get(one) == own[kind] for one in kinds)
    )


def _is_grid(numbers: _Numbers) -> bool:
    count = 1
    for axis in zip(*numbers, strict=True):
        count *= max(axis) + 1
    return len(numbers) == count


def files_in(path: Path, prefix: str = "", levels: int = _LEVELS) -> Iterator[tuple[str, Entry]]:
    """Yield relative name and entry of all files in a directory; links to directories are left out.

    Raises:
        OSError: a directory cannot be read.

    """
    for entry in listed(path).values():
        if not entry.is_dir:
            yield prefix + entry.name, entry
        elif not entry.is_link and levels > 1:
            yield from files_in(entry.path, f"{prefix}{entry.name}/", levels - 1)
