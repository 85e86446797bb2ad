"""torchtitan: ``step-N`` directories of DCP or of a sharded safetensors model.

torchtitan loads the highest N in any name that contains ``step-N``, ignoring suffixes, if the
directory has its index. Directories without an index count towards the number of kept checkpoints.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import CheckpointFormat, Found, Names, candidate
from holdfast.adapters.checkpoints.dcp import INDEX, directory_problems, has_index, is_dcp
from holdfast.adapters.checkpoints.plain_files import listed, names_in
from holdfast.adapters.checkpoints.state_files import files_problems
from holdfast.model.checkpoints import Checkpoint, Depth, Problem

_NAME: Final = re.compile(r"step-(\d{1,15})")
_MODEL_INDEX: Final = "model.safetensors.index.json"


def find(folder: Path, names: Names) -> Found | None:  # noqa: ARG001 - a Find
    """See ``Find``."""
    rows: list[Checkpoint] = []
    has_format = False
    for entry in names.values():
        number = _NAME.search(entry.name)
        if number is not None and entry.is_dir:
            inside = names_in(entry.path)
            has_format = has_format or is_dcp(inside) or _MODEL_INDEX in inside
            is_ended = has_index(inside) or _MODEL_INDEX in inside
            rows.append(candidate(entry, int(number[1]), is_ended=is_ended))
    rows.sort(key=lambda one: (one.step or 0, one.name), reverse=True)
    return Found(checkpoints=tuple(rows)) if has_format else None


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:  # noqa: ARG001 - a Check
    """See ``Check``."""
    names = listed(path)
    if _MODEL_INDEX in names and INDEX not in names:
        yield from files_problems(path, names, depth)
    else:
        yield from directory_problems(path, names, depth)


FORMAT: Final = CheckpointFormat(
    name="torchtitan",
    title="torchtitan",
    find=find,
    check=check,
    recognized_by="directories `step-N` with DCP files or `model.safetensors.index.json`",
    complete_when="what DCP needs, or the index and the safetensors files that it names",
    loads="the highest N",
    not_detected="as DCP; changed bytes in a safetensors file",
)
