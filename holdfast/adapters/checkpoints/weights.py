"""Searches the tensors of a checkpoint for NaN and infinity, without torch."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints import safetensors_file, torch_archive, torch_file
from holdfast.adapters.checkpoints.contract import CannotVerify
from holdfast.adapters.checkpoints.dcp import SHARD, is_dcp, read_index
from holdfast.adapters.checkpoints.nonfinite import BF16, F16, F32, F64, scan
from holdfast.adapters.checkpoints.plain_files import Window, listed, opened
from holdfast.kit.bounded_files import NotRegular
from holdfast.model.checkpoint_manifests import WeightScan
from holdfast.model.checkpoints import Problem

_KINDS: Final = {
    "F16": F16,
    "BF16": BF16,
    "F32": F32,
    "F64": F64,
    "HalfStorage": F16,
    "BFloat16Storage": BF16,
    "FloatStorage": F32,
    "DoubleStorage": F64,
    "ComplexFloatStorage": F32,
    "ComplexDoubleStorage": F64,
    "C64": F32,
    "C128": F64,
}
"""Floating-point types of safetensors and of torch; others cannot hold NaN or are not scanned."""

_PADDED: Final = re.compile(r"\.bucket_idx_\d{1,9}\.")
"""In keys of Megatron's distributed optimizer whose tensors have padding that is never written.

Megatron-core 0.19.2, ``distrib_optimizer.py``: padding between parameters is ``torch.empty``. It
may contain any bytes, and its offsets are not saved.
"""

_LISTED: Final = 20
"""Maximum number of tensors that a result names."""


def scan_weights(path: Path, parts: Sequence[str] | None = None) -> WeightScan:
    """Return what a checkpoint contains that is not finite.

    Files that cannot be parsed are left out: verification reports them.

    Args:
        path: the checkpoint, or the directory of ``parts``.
        parts: files of a checkpoint that is files in several directories.

    Raises:
        OSError: a file cannot be read.

    """
    scanned = 0
    nan: list[str] = []
    infinite: list[str] = []
    for name, kind, window in _tensors(path) if parts is None else _of_parts(path, parts):
        layout = _KINDS.get(kind)
        if layout is None:
            continue
        scanned += window.size
        found = scan(window, layout)
        if found.has_nan:
            nan.append(name)
        elif found.has_infinity:
            infinite.append(name)
        if len(nan) >= _LISTED:
            break
    return WeightScan(scanned=scanned, nan=tuple(nan), infinite=tuple(infinite[:_LISTED]))


def _of_parts(folder: Path, parts: Sequence[str]) -> Iterator[tuple[str, str, Window]]:
    for part in parts:
        yield from _of_file(folder / part, part)


def _tensors(path: Path) -> Iterator[tuple[str, str, Window]]:
    """Yield ``file: tensor``, type and bytes of each tensor of a checkpoint."""
    if not path.is_dir():
        yield from _of_file(path, path.name)
        return
    for folder, _, names in os.walk(path):
        slices = _slices(Path(folder)) if is_dcp(names) else {}
        for name in sorted(names):
            file = Path(folder, name)
            shown = file.relative_to(path).as_posix()
            if name.endswith(SHARD):
                yield from _of_slices(file, shown, slices.get(name, []))
            else:
                yield from _of_file(file, shown)


def _slices(folder: Path) -> dict[str, list[tuple[str, int, int]]]:
    """Return key, offset and length of the items in each file of a DCP directory."""
    try:
        index = read_index(folder, listed(folder))
    except CannotVerify:
        return {}
    if isinstance(index, Problem):
        return {}
    return {
        name: [
            (one.key, one.offset, one.length)
            for one in row
            if not one.is_opaque and _PADDED.search(one.key) is None
        ]
        for name, row in index.files.items()
    }


def _of_slices(
    path: Path, shown: str, slices: list[tuple[str, int, int]]
) -> Iterator[tuple[str, str, Window]]:
    with opened(path) as window:
        for key, offset, length in slices:
            part = window.part(offset, length)
            for _, kind, data in _of_window(part):
                yield f"{shown}: {key}", kind, data


def _of_file(path: Path, shown: str) -> Iterator[tuple[str, str, Window]]:
    try:
        with opened(path) as window:
            for name, kind, data in _of_window(window):
                yield f"{shown}: {name}", kind, data
    except (NotRegular, FileNotFoundError):  # verification reports it
        return


def _of_window(window: Window) -> Iterator[tuple[str, str, Window]]:
    """Yield name, type and bytes of each tensor; none if it is of neither form."""
    head = window.read(0, 9)
    try:
        if head.startswith(torch_archive.ZIP_START):
            yield from torch_file.storages(window)
        elif head[8:] == b"{":
            yield from safetensors_file.tensors(window)
    except (torch_archive.InvalidTorchFile, safetensors_file.BadHeader, CannotVerify):
        return
