"""Plain safetensors: files, or directories with files, that a script or a library names.

A model of several files is ``model-0000i-of-0000N.safetensors`` with an index, written last, that
names the file of each tensor.
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
    incomplete,
)
from holdfast.adapters.checkpoints.dcp import step_in
from holdfast.adapters.checkpoints.links import fixed_group, link_pointer, repoint_links
from holdfast.adapters.checkpoints.plain_files import Entry, listed, names_in
from holdfast.adapters.checkpoints.safetensors_file import file_problems
from holdfast.adapters.checkpoints.state_files import fewer_files, files_problems
from holdfast.model.checkpoints import Checkpoint, Depth, Problem

_SUFFIX: Final = ".safetensors"
_PART: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")


def find(folder: Path, names: Names) -> Found | None:
    """See ``Find``. Files with one number each, or directories, or DIRECTORY itself."""
    files = [one for one in names.values() if one.name.endswith(_SUFFIX) and not one.is_dir]
    numbered = [one for one in files if not one.is_link and not _PART.fullmatch(one.name)]
    steps = [step_in(one.name.removesuffix(_SUFFIX)) for one in numbered]
    entries = [
        one
        for one in names.values()
        if one.is_dir and any(name.endswith(_SUFFIX) for name in names_in(one.path))
    ]
    if numbered and None not in steps and len(set(steps)) == len(steps) and not entries:
        rows = [candidate(*pair, is_ended=True) for pair in zip(numbered, steps, strict=True)]
    elif files:
        own = Entry(
            name=".", path=folder, is_dir=True, is_file=False, is_link=False, size=0,
            changed_at=max(entry.changed_at for entry in names.values()),
        )  # fmt: skip
        return Found(checkpoints=(candidate(own, step_in(folder.name), is_ended=True),))
    else:
        rows = [_of_directory(one) for one in entries if not one.is_link]
    if not rows:
        return None
    rows.sort(key=lambda one: (one.step if one.step is not None else -1, one.changed_at))
    pointer = link_pointer(names, {one.name for one in rows})
    return Found(checkpoints=tuple(rows[::-1]), pointer=pointer)


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    if not path.is_dir():
        yield from file_problems(path)
        return
    names = listed(path)
    yield from files_problems(path, names, depth, older)
    yield from _missing_parts(names)
    yield from fewer_files(names, older)


def _of_directory(entry: Entry) -> Checkpoint:
    name = entry.name
    return candidate(entry, step_in(name), is_ended=True, group=fixed_group(name))


def _missing_parts(names: Names) -> Iterator[Problem]:
    """Check that a model of N files has all of them, also without an index."""
    for found in filter(None, map(_PART.fullmatch, list(names))):
        model, _, count = found.groups()
        for number in range(1, min(int(count), 10_000) + 1):
            name = f"{model}-{number:05d}-of-{count}{_SUFFIX}"
            if name not in names:
                yield incomplete(f"{name[:80]} is missing")
        break


FORMAT: Final = CheckpointFormat(
    name="safetensors",
    title="safetensors, without a framework",
    find=find,
    check=check,
    repoint=repoint_links,
    script_chooses=True,
    recognized_by="`*.safetensors` in DIRECTORY or in directories within",
    complete_when="header and length of each file match, an index names files and tensors that"
    " are there, all N files of `NAME-0000i-of-0000N.safetensors` are there, and no file is missing"
    " that the checkpoint before has",
    loads="what a link such as `latest` names; else what the script chooses, taken to be the"
    " highest number in a name",
    not_detected="changed bytes in a safetensors file: it has no checksum; a file of another step;"
    " damage of a file of another kind, unless `torch.save` wrote it",
)
