"""Verifies the files of a checkpoint directory by the format that each file name implies."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import Names, damaged, incomplete, within
from holdfast.adapters.checkpoints.dcp import directory_problems, is_dcp
from holdfast.adapters.checkpoints.npz_file import SUFFIX as NPZ
from holdfast.adapters.checkpoints.npz_file import file_problems as npz_problems
from holdfast.adapters.checkpoints.plain_files import Entry, listed, read_object
from holdfast.adapters.checkpoints.safetensors_file import BadHeader, tensor_names
from holdfast.adapters.checkpoints.safetensors_file import file_problems as safetensors_problems
from holdfast.adapters.checkpoints.torch_file import file_problems, is_torch_file
from holdfast.model.checkpoints import Depth, Problem

TORCH_SUFFIXES: Final = (".pt", ".pth", ".bin", ".pkl", ".ckpt")
_BY_TORCH: Final = re.compile(
    r"(optimizer|scheduler|scaler|sampler|dl_state_dict|rng_state|training_args|user_content"
    r"|(dp_|mp_)?rank_\d|tensor_\d).*\.(pt|pth|bin)|(fp32|exp_avg|exp_avg_sq|step)\.pt"
    r"|.*(optimizer|optim_states|model_states)\.pt|.*model.*\.bin"
    r"|(random_states|custom_checkpoint)_\d+\.pkl"
)
"""Names under which frameworks write with ``torch.save``: such a file has to be one.

Scripts and callbacks use the same suffixes for files of ``pickle`` and of other libraries.
"""

_SAFETENSORS: Final = ".safetensors"
_INDEX_END: Final = ".index.json"


def is_state(entry: Entry) -> bool:
    """Return whether a file contains training state, by its suffix."""
    return not entry.is_dir and entry.name.endswith(
        (*TORCH_SUFFIXES, _SAFETENSORS, _INDEX_END, NPZ)
    )


def files_problems(
    path: Path, names: Names, depth: Depth, older: Path | None = None
) -> Iterator[Problem]:
    """Yield the problems of the state files of a directory, and of DCP directories in it.

    A truncated file shows that the save did not complete: these formats write no file last.
    """
    for entry in names.values():
        if is_state(entry) and not entry.name.endswith(_INDEX_END):
            yield from _file_problems(entry, depth, older)
        elif entry.name.endswith(_INDEX_END):
            yield from _index_problems(path, entry)
        elif entry.is_dir and is_dcp(inside := listed(entry.path)):
            for problem in directory_problems(entry.path, inside, depth):
                yield within(f"{entry.name}/", problem)


def fewer_files(
    names: Names, older: Path | None, of_ranks: re.Pattern[str] | None = None
) -> Iterator[Problem]:
    """Compare with the older checkpoint: each save writes the same state files.

    The job may have had more ranks then. Without a record of their number, a save that ended before
    the last ranks had written looks the same, so such a file is missing. ``of_ranks`` matches names
    of files of ranks that the caller has compared with a record, and that are not compared here.
    """
    if older is None:
        return
    for entry in listed(older).values():
        is_dir = entry.is_dir and is_dcp(listed(entry.path))
        is_compared = of_ranks is None or not of_ranks.fullmatch(entry.name)
        if is_compared and (is_state(entry) or is_dir) and entry.name not in names:
            yield incomplete(f"{entry.name} is missing, but {older.name} has it")


def weights_in(names: Names) -> list[str]:
    """Return the names of files and directories that contain model weights."""
    starts = ("model", "pytorch_model", "adapter_model", "global_step", "diffusion_pytorch_model")
    ends = (_SAFETENSORS, ".bin")
    return [
        name
        for name, entry in names.items()
        if name.startswith(starts) and (entry.is_dir or name.endswith(ends))
    ]


def _file_problems(entry: Entry, depth: Depth, older: Path | None) -> Iterator[Problem]:
    if entry.name.endswith(_SAFETENSORS):
        problems = safetensors_problems(entry.path)
    elif entry.name.endswith(NPZ):
        problems = npz_problems(entry.path, depth)
    elif _is_of_torch(entry, older):
        is_by_name = _BY_TORCH.fullmatch(entry.name) is not None
        problems = file_problems(entry.path, depth, may_be_other=not is_by_name)
    else:
        return
    yield from (within(f"{entry.name} ", one) for one in problems)


def _is_of_torch(entry: Entry, older: Path | None) -> bool:
    """Return whether ``torch.save`` must have written a file.

    One that was cut off or zeroed at its start is known by the older checkpoint. No writer leaves
    an empty file.
    """
    if entry.size == 0 or _BY_TORCH.fullmatch(entry.name) or is_torch_file(entry.path):
        return True
    before = older / entry.name if older is not None else None
    return before is not None and before.is_file() and is_torch_file(before)


def _index_problems(path: Path, entry: Entry) -> Iterator[Problem]:
    """Check that the files of all tensors in the index exist; it is written after them."""
    try:
        files = read_object(entry.path).get("weight_map")
    except ValueError as error:
        unread = damaged if entry.size else incomplete
        yield unread(f"{entry.name} cannot be read: {error}")
        return
    if not isinstance(files, dict) or not all(isinstance(one, str) for one in files.values()):
        yield damaged(f"{entry.name} has no weight_map")
        return
    tensors_of: dict[str, set[str]] = {}
    for tensor, name in files.items():
        tensors_of.setdefault(name, set()).add(tensor)
    for name, tensors in tensors_of.items():
        if "/" in name or not (path / name).is_file():
            yield damaged(f"{name[:80]}, which {entry.name} names, is missing")
        elif name.endswith(_SAFETENSORS):
            yield from _tensor_problems(path / name, tensors)


def _tensor_problems(path: Path, tensors: set[str]) -> Iterator[Problem]:
    try:
        missing = tensors - tensor_names(path)
    except BadHeader:
        return  # was reported with the file
    if missing:
        yield damaged(f"{path.name} has no tensor {min(missing)[:80]}")
