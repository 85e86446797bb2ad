"""Verification of checkpoints before an attempt: choice by sizes, a damaged one, and checksums.

PyTorch DCP with 1,000 shards for each checkpoint, as 1,000 ranks write them. Shards are sparse: by
sizes, no tensor is read. Checksums are measured in time of the processor on one file in memory,
next to a program that only reads it and computes its CRC32.
"""

import os
import pickle
import random
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.figure import Figure
from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.torch_file import file_problems
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.engine.checkpoint_guard import inspect
from holdfast.model.checkpoints import Depth

CHECKPOINTS = 100
SHARDS = 1000
QUICK_CHECKPOINTS = 5
LENGTH = 1 << 20
"""Bytes of a shard, all of them a hole."""

TENSORS_BYTES = 256 << 20
QUICK_BYTES = 32 << 20
TIMES = 3
"""The best of so many measurements counts: what else runs on the machine only adds time."""


@dataclass(eq=False)
class Position:
    """As ``MetadataIndex``: the key of an item."""

    fqn: str


@dataclass(eq=False)
class Place:
    """As ``_StorageInfo``: where an item is stored."""

    relative_path: str
    offset: int
    length: int


@dataclass(eq=False)
class Metadata:
    """As the class of that name in PyTorch: the content of ``.metadata``."""

    storage_data: dict[Position, Place] = field(default_factory=dict)


def run(*, quick: bool = False) -> list[Figure]:
    """Choose among many checkpoints, then with a damaged newest one; then compare checksums."""
    count = QUICK_CHECKPOINTS if quick else CHECKPOINTS
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "sizes"
        _save(folder, count)
        whole = _best(lambda: _choose(folder, count))
        os.truncate(folder / f"step_{count}/__7_0.distcp", LENGTH // 2)
        damaged = _best(lambda: _choose(folder, count - 1))
        path = Path(home) / "model.pt"
        _save_tensors(path, QUICK_BYTES if quick else TENSORS_BYTES)
        plain = _best(lambda: _crc(path), time.process_time)
        cpu_s = _best(lambda: _compare_checksums(path), time.process_time)
    named = f"choose among {count} x {SHARDS} shards by sizes"
    return [
        Figure(name=named, value=whole, unit="s", goal=2),
        Figure(name="more for a damaged newest one", value=max(0.0, damaged - whole), unit="s",
               goal=1),
        Figure(name="checksums, CPU beside reading and CRC32", value=100 * cpu_s / plain, unit="%",
               goal=125),
    ]  # fmt: skip


def _save(folder: Path, count: int) -> None:
    names = [f"__{rank}_0.distcp" for rank in range(SHARDS)]
    index = Metadata({Position(name): Place(name, 0, LENGTH) for name in names})
    content = pickle.dumps(index, protocol=4)
    for step in range(1, count + 1):
        path = folder / f"step_{step}"
        path.mkdir(parents=True)
        for name in names:
            with (path / name).open("wb") as file:
                file.truncate(LENGTH)
        (path / ".metadata").write_bytes(content)


def _choose(folder: Path, expected: int) -> None:
    choice = inspect(CheckpointDirectory(folder), Depth.SIZES, None).choice
    assert choice.outcome is ResumeOutcome.RESUME, choice
    assert choice.resume is not None
    assert choice.resume.step == expected, choice


def _save_tensors(path: Path, size: int) -> None:
    data = random.Random(0).randbytes(1 << 20) * (size >> 20)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("model/data.pkl"), pickle.dumps({}, protocol=2))
        archive.writestr(zipfile.ZipInfo("model/data/0"), data)


def _crc(path: Path) -> None:
    checksum = 0
    with path.open("rb", buffering=0) as file:
        while part := file.read(1 << 20):
            checksum = zlib.crc32(part, checksum)


def _compare_checksums(path: Path) -> None:
    assert not list(file_problems(path, Depth.HASHES))


def _best(measured: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> float:
    return min(_took_s(measured, clock) for _ in range(TIMES))


def _took_s(measured: Callable[[], None], clock: Callable[[], float]) -> float:
    begun = clock()
    measured()
    return clock() - begun
