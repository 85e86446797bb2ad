"""DLRover's flash checkpoint: ``dlrover_latest.txt`` beside checkpoints of another framework.

It is written once all shards are on the storage. For Megatron-LM and DeepSpeed, DLRover writes the
tracker of the framework, too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints import dcp, deepspeed, megatron, torch_save
from holdfast.adapters.checkpoints.contract import CheckpointFormat, Found, Names
from holdfast.adapters.checkpoints.plain_files import listed, read_text
from holdfast.kit.files import write_durably
from holdfast.model.checkpoints import Checkpoint, Depth, Pointer, PointerKind, Problem

_TRACKER: Final = "dlrover_latest.txt"
_INNER: Final = (megatron.FORMAT, deepspeed.FORMAT, dcp.FORMAT, torch_save.FORMAT)


def find(folder: Path, names: Names) -> Found | None:
    """See ``Find``. The tracker of the framework, where it has one, decides what is loaded."""
    inner = _inner(folder, names) if _TRACKER in names else None
    if inner is None:
        return None
    found = inner[1]
    if inner[0].repoint is not None and found.pointer.kind is not PointerKind.NONE:
        return found
    return Found(checkpoints=found.checkpoints, pointer=_pointer(folder, found.checkpoints))


def check(path: Path, depth: Depth, older: Path | None) -> Iterator[Problem]:
    """See ``Check``."""
    inner = _inner(path.parent, listed(path.parent))
    if inner is not None:
        yield from inner[0].check(path, depth, older)


def repoint(folder: Path, name: str) -> None:
    """See ``Repoint``. Sets both trackers."""
    inner = _inner(folder, listed(folder))
    rows = inner[1].checkpoints if inner is not None else ()
    step = next((one.step for one in rows if one.name == name), None)
    if inner is None or step is None:
        raise OSError(f"{name} has no step, which {_TRACKER} names")
    if inner[0].repoint is not None:
        inner[0].repoint(folder, name)
    write_durably(folder / _TRACKER, str(step).encode())


def _inner(folder: Path, names: Names) -> tuple[CheckpointFormat, Found] | None:
    for row in _INNER:
        found = row.find(folder, names)
        if found is not None and (found.checkpoints or found.pointer.kind is PointerKind.NAMED):
            return row, found
    return None


def _pointer(folder: Path, rows: tuple[Checkpoint, ...]) -> Pointer:
    text = read_text(folder / _TRACKER)
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        return Pointer(kind=PointerKind.UNREADABLE, file=_TRACKER, text=text[:40])
    step = int(text)
    name = next((one.name for one in rows if one.step == step), text)
    return Pointer(kind=PointerKind.NAMED, file=_TRACKER, text=text, name=name, step=step)


FORMAT: Final = CheckpointFormat(
    name="dlrover",
    title="DLRover flash checkpoint",
    find=find,
    check=check,
    repoint=repoint,
    recognized_by=f"`{_TRACKER}` beside checkpoints of `megatron`, `deepspeed`, `dcp` or"
    " `torch-save`",
    complete_when="as in the format of the checkpoint",
    loads=f"what the framework's tracker names, else `{_TRACKER}`; a newer one in the shared memory"
    " of a node comes first",
    not_detected="as in the format of the checkpoint",
)
