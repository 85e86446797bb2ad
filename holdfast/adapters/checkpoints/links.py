"""Symbolic links such as ``latest.pt``, by which a script finds its newest checkpoint."""

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import Names
from holdfast.adapters.checkpoints.dcp import step_in
from holdfast.adapters.checkpoints.plain_files import Entry, listed
from holdfast.kit.files import sync_directory
from holdfast.model.checkpoints import Pointer, PointerKind

FIXED_NAME: Final = re.compile(r"(last|latest|current|resume|checkpoint|ckpt|snapshot)\b", re.I)
"""Prefix of the names under which a script looks for its newest checkpoint."""

_NEWEST: Final = re.compile(r"(last|latest|current|resume)(-rank\d+)?(\.\w+)?", re.I)
"""Names of links that come first: ``checkpoint-best.pt`` may be there as well."""

_RANK: Final = re.compile(r"-rank\d+")
_NUMBER: Final = re.compile(r"\d+")


def link_pointer(names: Names, candidates: Collection[str]) -> Pointer:
    """Return the link to one of the candidates, or a broken one that was a link to such a one."""
    found = []
    kinds = {_kind(one) for one in candidates}
    for entry in names.values():
        target = _target(entry)
        if target is None:
            continue
        if target in candidates or (_is_broken(entry) and _kind(target) in kinds):
            found.append((entry.name, target))
    if not found:
        return Pointer()
    name, target = _first(found)
    step = step_in(target)
    return Pointer(kind=PointerKind.NAMED, file=name, text=target, name=target, step=step)


def repoint_links(folder: Path, name: str) -> None:
    """Point the link of the newest checkpoint to another one; see ``Repoint``.

    So are links with the same target, those of other ranks, and broken ones. Others, such as one to
    the best checkpoint or to a log, stay.
    """
    links = {}
    for entry in listed(folder).values():
        target, is_broken = _target(entry), _is_broken(entry)
        if target is None:
            continue
        if _kind(target) == _kind(name) if is_broken else _is_like(folder / target, folder / name):
            links[entry.name] = target, is_broken
    if not links:
        return
    first, newest = _first([(link, target) for link, (target, _) in links.items()])
    for link, (target, is_broken) in links.items():
        is_other_rank = _RANK.sub("", link) == _RANK.sub("", first)
        if is_broken or is_other_rank or target == newest:
            temporary = folder / f".{link}.{os.getpid()}"
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(name)
            temporary.replace(folder / link)
    sync_directory(folder)


def fixed_group(name: str) -> str:
    """Return the group of a directory: a script loads ``latest`` by its name, and no other."""
    return name if step_in(name) is None and FIXED_NAME.match(name) else ""


def _first(links: list[tuple[str, str]]) -> tuple[str, str]:
    """Return the pair of link and target that a script most likely follows."""
    return min(links, key=lambda link: (_NEWEST.fullmatch(link[0]) is None, link[0]))


def _target(entry: Entry) -> str | None:
    """Return the name that a link points to in its own directory.

    That may be known by another path: absolute, or of another mount. If that path does not exist
    here, the link is broken, and was meant for the directory if that has such a name.
    """
    if not entry.is_link or not FIXED_NAME.match(entry.name):
        return None
    target, folder = Path(os.readlink(entry.path)), entry.path.parent
    try:
        is_here = os.path.samefile(folder / target.parent, folder)
    except OSError:
        is_here = os.path.lexists(folder / target.name)
    return target.name if is_here else None


def _is_broken(entry: Entry) -> bool:
    return not (entry.is_dir or entry.is_file)


def _kind(name: str) -> tuple[str, bool]:
    """Return what a broken link shows of its target: the suffix, and whether a step is in the name.

    A name with a suffix counts without a step, too: ``last.pt`` may have been a link to a link.
    """
    suffix = Path(_NUMBER.sub("N", name)).suffix
    return suffix, not suffix and step_in(name) is not None


def _is_like(target: Path, chosen: Path) -> bool:
    """Return whether the target of a link may be a checkpoint: a log may have such a link, too."""
    if chosen.is_dir():
        return target.is_dir()
    return target.is_file() and target.suffix == chosen.suffix
