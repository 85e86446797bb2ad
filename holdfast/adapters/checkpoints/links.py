"""Symbolic links such as ``latest.pt``, by which a script finds its newest checkpoint."""

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import Names
from holdfast.adapters.checkpoints.dcp import step_in
from holdfast.adapters.checkpoints.plain_files import Entry
from holdfast.kit.files import sync_directory
from holdfast.model.checkpoints import Pointer, PointerKind

FIXED_NAME: Final = re.compile(r"(last|latest|current|resume|checkpoint|ckpt|snapshot)\b", re.I)
"""Prefix of the names under which a script looks for its newest checkpoint."""


def link_pointer(names: Names, candidates: Collection[str]) -> Pointer:
    """Return the link to one of the candidates, or a broken one."""
    for entry in names.values():
        target = _target(entry)
        if target is not None and (target in candidates or not (entry.is_dir or entry.is_file)):
            step = step_in(target)
            kind = PointerKind.NAMED
            return Pointer(kind=kind, file=entry.name, text=target, name=target, step=step)
    return Pointer()


def repoint_links(folder: Path, name: str) -> None:
    """Point all such links to another checkpoint; see ``Repoint``."""
    for file in os.scandir(folder):
        if file.is_symlink() and FIXED_NAME.match(file.name):
            temporary = folder / f".{file.name}.{os.getpid()}"
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(name)
            temporary.replace(file.path)
    sync_directory(folder)


def _target(entry: Entry) -> str | None:
    """Return the name that a link points to in its own directory."""
    if not entry.is_link or not FIXED_NAME.match(entry.name):
        return None
    target = os.readlink(entry.path)
    own = Path(target)
    return own.name if own.name == target or own.parent == entry.path.parent else None
