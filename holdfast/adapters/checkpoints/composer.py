"""MosaicML Composer: ``ep<E>-ba<B>-rank0.pt`` files, or ``ep<E>-ba<B>`` directories of DCP.

``latest-rank<R>.pt`` is a link to the newest one, which autoresume follows. It is removed and made
anew at each save.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import CheckpointFormat, Found, Names, candidate
from holdfast.adapters.checkpoints.dcp import directory_problems, has_index
from holdfast.adapters.checkpoints.links import link_pointer, repoint_links
from holdfast.adapters.checkpoints.own_steps import step_problems
from holdfast.adapters.checkpoints.pickles import Pairs
from holdfast.adapters.checkpoints.plain_files import listed, names_in
from holdfast.adapters.checkpoints.torch_file import file_problems, saved_value
from holdfast.model.checkpoints import Depth, Pointer, PointerKind, Problem

_LINK: Final = "latest-rank0.pt"
_NAME: Final = re.compile(r"ep\d{1,15}-ba(\d{1,15})(-rank0(\.pt)?)?")


def find(folder: Path, names: Names) -> Found | None:  # noqa: ARG001 - a Find
    """See ``Find``. Steps are batches."""
    rows = []
    for entry in names.values():
        number = _NAME.fullmatch(entry.name)
        if number is not None and not entry.is_link:
            is_ended = not entry.is_dir or has_index(names_in(entry.path))
            rows.append(candidate(entry, int(number[1]), is_ended=is_ended))
    if not rows:
        return None
    rows.sort(key=lambda one: (one.step or 0, one.name), reverse=True)
    pointer = link_pointer(names, {one.name for one in rows})
    if pointer.kind is PointerKind.NONE:
        pointer = Pointer(kind=PointerKind.ABSENT, file=_LINK)
    linked = _NAME.fullmatch(pointer.name)
    pointer = replace(pointer, step=int(linked[1]) if linked is not None else None)
    return Found(checkpoints=tuple(rows), pointer=pointer)


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    if path.is_dir():
        yield from directory_problems(path, listed(path), depth, older)
    else:
        yield from file_problems(path, depth)
        names = (path.name, older.name if older is not None else "")
        found = [_NAME.fullmatch(name) for name in names]
        own, before = (int(one[1]) if one is not None else None for one in found)
        yield from step_problems(path, older, (own, before), _saved_batch)


def repoint(folder: Path, name: str) -> None:
    """See ``Repoint``. A kill between the removal of the link and its return leaves none."""
    link = folder / _LINK
    if not any(one.is_symlink() for one in folder.glob("latest*")):
        link.symlink_to(name)
    repoint_links(folder, name)


def _saved_batch(path: Path) -> int | None:
    value: object = saved_value(path, "state")
    for key in ("timestamp", "Timestamp", "batch"):
        value = value.get(key) if isinstance(value, Pairs) else None
    return value if isinstance(value, int) else None


FORMAT: Final = CheckpointFormat(
    name="composer",
    title="MosaicML Composer",
    find=find,
    check=check,
    repoint=repoint,
    recognized_by="`epE-baB-rank0.pt` files or `epE-baB` directories",
    complete_when="file: as `torch.save`; directory: what DCP needs",
    loads="what `latest-rank0.pt` links to; without a link, Composer starts from the beginning",
    not_detected="as `torch.save` and DCP",
)
