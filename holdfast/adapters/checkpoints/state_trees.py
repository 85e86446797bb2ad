"""Verifies the state files in nested directories, for formats that keep files of ranks in them."""

import re
from collections import Counter
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


def fewer_in_tree(path: Path, older: Path | None) -> Iterator[Problem]:
    """Compare the numbers of files of each kind with the older checkpoint; digits may differ."""
    if older is None:
        return
    own = Counter(_NUMBER.sub("N", name) for name, _ in files_in(path))
    expected = Counter(_NUMBER.sub("N", name) for name, _ in files_in(older))
    for kind, count in sorted(expected.items()):
        if own[kind] < count:
            missing = f"{count - own[kind]} of {count} files {kind[:80]} are missing"
            yield incomplete(f"{missing}, but {older.name} has them")


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
