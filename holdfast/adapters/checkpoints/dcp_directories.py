"""Plain DCP: a run's directories of PyTorch Distributed Checkpoint, or a single one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import CheckpointFormat, Found, Names, candidate
from holdfast.adapters.checkpoints.dcp import directory_problems, has_index, is_dcp, step_in
from holdfast.adapters.checkpoints.links import fixed_group, link_pointer, repoint_links
from holdfast.adapters.checkpoints.plain_files import Entry, listed, names_in
from holdfast.model.checkpoints import Depth, Problem

_NUMBER: Final = re.compile(r"\d{1,15}(?!.*\d)")
_FIRST: Final = frozenset((".metadata.tmp",))
"""Names that may be in a directory whose save has only started."""


def find(folder: Path, names: Names) -> Found | None:
    """Return the checkpoint directories of a run, or the directory itself."""
    if is_dcp(names):
        own = Entry(
            name=".", path=folder, is_dir=True, is_file=False, is_link=False, size=0,
            changed_at=max(entry.changed_at for entry in names.values()),
        )  # fmt: skip
        return Found(checkpoints=(candidate(own, step_in(folder.name), is_ended=has_index(names)),))
    inside = {
        entry.name: names_in(entry.path)
        for entry in names.values()
        if entry.is_dir and not entry.is_link
    }
    kinds = {_NUMBER.sub("N", name) for name, files in inside.items() if is_dcp(files)}
    found = [
        candidate(names[name], step_in(name), is_ended=has_index(files), group=fixed_group(name))
        for name, files in inside.items()
        if is_dcp(files) or (_NUMBER.sub("N", name) in kinds and files <= _FIRST)
    ]
    if not found:
        return None
    found.sort(
        key=lambda one: (one.step if one.step is not None else -1, one.changed_at), reverse=True
    )
    pointer = link_pointer(names, {one.name for one in found})
    return Found(checkpoints=tuple(found), pointer=pointer)


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    yield from directory_problems(path, listed(path), depth, older)


FORMAT: Final = CheckpointFormat(
    name="dcp",
    title="PyTorch Distributed Checkpoint",
    find=find,
    check=check,
    repoint=repoint_links,
    script_chooses=True,
    recognized_by="`.metadata` or `__R_N.distcp`, in DIRECTORY or in directories within",
    complete_when="`.metadata` exists, names files that exist with the recorded length, and was"
    " written after them",
    loads="what a link such as `latest` names; else what the script chooses, taken to be the"
    " highest number in a name, then the newest",
    not_detected="a file of another step with the same layout, if its time is old; a changed byte"
    " in `.metadata` that leaves a consistent index",
)
