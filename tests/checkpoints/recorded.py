"""Checkpoints that real frameworks wrote, and ways to damage them."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.table import ROWS
from holdfast.engine.checkpoint_guard import GuardResult, guard
from holdfast.model.checkpoints import Checkpoint, Depth
from tests.archives import opened

RECORDINGS = Path(__file__).parents[1] / "recordings" / "checkpoints"


def unpacked(recording: str, folder: Path) -> Path:
    """The files of a recording, as if the framework had written the last one an hour ago."""
    with opened(RECORDINGS / f"{recording}.tar.xz") as archive:
        archive.extractall(folder)
        members = archive.getmembers()
    shift = int(time.time()) - 3600 - max(int(one.mtime) for one in members)
    for one in members:
        path = folder / one.name
        at = path.lstat().st_mtime_ns + shift * 1_000_000_000
        os.utime(path, ns=(at, at), follow_symlinks=False)
    return folder


def states(folder: Path, depth: Depth = Depth.SIZES) -> dict[str, str]:
    store = CheckpointDirectory(folder)
    every = store.survey().checkpoints
    pairs = zip(every, [*[one.name for one in every[1:]], None], strict=True)
    return {one.name: store.verify(one.name, depth, older).state.value for one, older in pairs}


def verified(folder: Path, name: str, depth: Depth = Depth.SIZES) -> Checkpoint:
    store = CheckpointDirectory(folder)
    names = [one.name for one in store.survey().checkpoints]
    older = names[names.index(name) + 1 :][:1]
    return store.verify(name, depth, *(older or [None]))


def guarded(folder: Path, depth: Depth = Depth.SIZES) -> GuardResult:
    return guard(CheckpointDirectory(folder), depth, quiet_since=None)


def files_of(folder: Path, name: str) -> list[Path]:
    """Return the files of a checkpoint, which may be in several directories."""
    path = folder / name
    if not path.exists():
        parts = (row.parts(folder, name) for row in ROWS if row.parts is not None)
        return sorted(folder / part for part in next((one for one in parts if one), ()))
    return [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())


def content(folder: Path) -> dict[str, bytes | str | None]:
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


def keeping_times(path: Path, change: Callable[[], None]) -> None:
    """Change a file and give it its old modification time: the content alone must show it."""
    before = path.stat()
    change()
    if path.exists():
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def cuts(path: Path, places: int = 0) -> Iterator[tuple[str, Callable[[], None]]]:
    """The file cut off at several places and at others evenly between, emptied, and gone."""
    size = path.stat().st_size
    between = {size * number // (places + 1) for number in range(1, places + 1)}
    for length in sorted({0, 8, size // 2, size - 22, size - 1} | between):
        is_newline = path.suffix == ".json" and length == size - 1
        if 0 <= length < size and not is_newline:
            yield f"cut to {length} of {size}", lambda length=length: os.truncate(path, length)
    yield "gone", path.unlink


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def zero(path: Path, at: int, count: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(count))


def put_back(source: Path, target: Path) -> None:
    """Copy a file or directory over another, times included."""
    if source.is_file():
        shutil.copy2(source, target)
    else:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, symlinks=True)
