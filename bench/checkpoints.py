"""Checkpoints: the choice before an attempt, checksums, 2,000 waiting ranks, the search for NaN.

The choice is made among checkpoints of PyTorch DCP with an index as 1,000 ranks write it; their
shards are sparse, since no tensor is read to compare sizes. Its time is that of the processor: the
directories were written just before, and whatever else runs on the machine would count. Hashing is
compared with ``sha256sum``, and CRC32 with reading alone, both on files that are not in the page
cache. Last comes what training frameworks do by themselves with a damaged checkpoint, of those that
are installed.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench import _checkpoint_index, _checkpoint_ranks, _checkpoint_resumes
from bench.figure import Figure
from bench.needs import torch
from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.manifest_check import compare, file_record
from holdfast.adapters.checkpoints.plain_files import opened
from holdfast.adapters.checkpoints.torch_file import file_problems
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.engine.checkpoint_guard import inspect
from holdfast.model.checkpoint_manifests import CheckpointManifest, WeightScan
from holdfast.model.checkpoints import CheckpointState, Depth

BY_NAME_ONLY = "with `make frameworks`, it runs eight training jobs under each kind of damage"

CHECKPOINTS = 100
TENSORS = 10
MANY_TENSORS = 100
"""Tensors of a model with 16 layers. The index has a line for each of them on each rank."""

QUICK_CHECKPOINTS = 5
TENSORS_BYTES = 1 << 30
QUICK_BYTES = 128 << 20
TIMES = 3
"""The best of so many measurements counts: what else runs on the machine only adds time."""


def lacks() -> str:
    """PyTorch writes the checkpoints."""
    return torch()


def run(*, quick: bool = False) -> Iterator[Figure]:
    """Measure all, each with its goal."""
    with tempfile.TemporaryDirectory() as home:
        yield from _choices(Path(home) / "sizes", QUICK_CHECKPOINTS if quick else CHECKPOINTS)
        yield from _checksums(Path(home) / "model.pt", QUICK_BYTES if quick else TENSORS_BYTES)
        yield from _checkpoint_ranks.waiting(Path(home) / "waiting", 200 if quick else 2000)
        yield from _checkpoint_ranks.searching(Path(home) / "searched", 3 if quick else 10)
        if not quick:
            yield from _checkpoint_resumes.figures(Path(home) / "resumes")


def _choices(folder: Path, count: int) -> list[Figure]:
    shards = _checkpoint_index.SHARDS
    _checkpoint_index.save(folder, 2, MANY_TENSORS)
    many = _best(lambda: _choose(folder, 2), time.process_time)
    shutil.rmtree(folder)
    _checkpoint_index.save(folder, count, TENSORS)
    whole = _best(lambda: _choose(folder, count), time.process_time)
    os.truncate(folder / f"step_{count}/__7_0.distcp", 100)
    damaged = _best(lambda: _choose(folder, count - 1), time.process_time)
    shutil.rmtree(folder)
    named = f"choose among {count} x {shards} shards by sizes"
    large = f"the same among 2, index of {MANY_TENSORS * shards} parts"
    more = "more for a damaged newest checkpoint"
    return [
        Figure(name=named, value=whole, unit="s", goal=2),
        Figure(name=large, value=many, unit="s", goal=None),
        Figure(name=more, value=max(0.0, damaged - whole), unit="s", goal=1),
    ]


def _checksums(path: Path, size: int) -> list[Figure]:
    _checkpoint_index.save_tensors(path, size)
    with opened(path) as window:
        record = file_record(window, "", path.stat().st_mtime_ns)
    now = datetime.now(UTC)
    manifest = CheckpointManifest(
        name=path.name,
        step=None,
        format="torch-save",
        saved_at=now,
        verified_at=now,
        seconds=0,
        state=CheckpointState.COMPLETE,
        files=(record,),
        weights=WeightScan(),
    )
    times = _alternating(
        path,
        read=lambda: _read(path),
        crc=lambda: _compare_crcs(path),
        program=lambda: _sha256sum(path),
        compare=lambda: _compare_manifest(path, manifest),
        record=lambda: _record(path),
    )
    path.unlink()
    gib = size / (1 << 30)
    speeds = {name: gib / seconds for name, seconds in times.items()}
    return [
        Figure(name="sha256sum", value=speeds["program"], unit="GiB/s", goal=None),
        Figure(name="compare SHA-256, time beside sha256sum", unit="%", goal=125,
               value=100 * times["compare"] / times["program"]),
        Figure(name="SHA-256 and CRC32 of a save, beside sha256sum", unit="%", goal=125,
               value=100 * times["record"] / times["program"]),
        Figure(name="read alone", value=speeds["read"], unit="GiB/s", goal=None),
        Figure(name="compare CRC32, time beside reading", unit="%", goal=125,
               value=100 * times["crc"] / times["read"]),
    ]  # fmt: skip


def _choose(folder: Path, expected: int) -> None:
    choice = inspect(CheckpointDirectory(folder), Depth.SIZES, None).choice
    assert choice.outcome is ResumeOutcome.RESUME, choice
    assert choice.resume is not None
    assert choice.resume.step == expected, choice


def _read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def _compare_crcs(path: Path) -> None:
    assert not list(file_problems(path, Depth.HASHES))


def _sha256sum(path: Path) -> None:
    subprocess.run(["sha256sum", path], check=True, stdout=subprocess.DEVNULL)


def _compare_manifest(path: Path, manifest: CheckpointManifest) -> None:
    assert not compare(path, manifest, Depth.HASHES, 0).problems


def _record(path: Path) -> None:
    with opened(path) as window:
        file_record(window, "", 0)


def _alternating(path: Path, **measured: Callable[[], None]) -> dict[str, float]:
    """Return the best time of each, taken in turns, from the disk."""
    times = {name: float("inf") for name in measured}
    for _ in range(TIMES):
        for name, one in measured.items():
            _drop_from_cache(path)
            times[name] = min(times[name], _took_s(one))
    return times


def _drop_from_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _best(measured: Callable[[], None], clock: Callable[[], float]) -> float:
    return min(_took_s(measured, clock) for _ in range(TIMES))


def _took_s(measured: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> float:
    begun = clock()
    measured()
    return clock() - begun
