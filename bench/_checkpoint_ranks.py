"""Ranks that wait for the verification of one of them, and steps beside the search for NaN."""

import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from bench import _checkpoint_index
from bench.figure import Figure
from holdfast.adapters.checkpoints.attempt_result import AttemptKey
from holdfast.apps.run.checkpoint_verification import (
    AttemptVerification,
    verify_for_all,
    wait_for_result,
)
from holdfast.model.checkpoints import Depth

PROCESSES = 20
SEARCHED_BYTES = 256 << 20
STEPS_S = 1.0
"""Duration of the steps of one measurement."""


def waiting(folder: Path, count: int) -> list[Figure]:
    """Let ``count`` ranks wait, in 20 processes, until one has verified the directory."""
    _checkpoint_index.save(folder, 2)
    verification = AttemptVerification(
        folder=folder,
        depth=Depth.SIZES,
        format_name=None,
        key=AttemptKey(job="bench", attempt=2),
        timeout=timedelta(minutes=5),
    )
    context = multiprocessing.get_context("fork")
    ready, ended = context.Semaphore(0), context.Queue()
    processes = [
        context.Process(target=_wait, args=(verification, count // PROCESSES, ready, ended))
        for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    lines, _ = verify_for_all(verification, "")
    decided = time.monotonic()
    assert lines == [], lines
    last = max(ended.get(timeout=300) for _ in processes)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    named = f"decision to the start of {count} waiting ranks"
    return [Figure(name=named, value=last - decided, unit="s", goal=2)]


def _wait(verification, count, ready, ended) -> None:  # type: ignore[no-untyped-def]
    """Let threads wait as ranks of a node; puts the time at which the last one continues."""
    threads = [threading.Thread(target=wait_for_result, args=(verification,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    ready.release()
    for thread in threads:
        thread.join()
    ended.put(time.monotonic())


def searching(folder: Path, rounds: int) -> list[Figure]:
    """Let steps and ``checkpoint watch`` compete for one processor, while it searches a save.

    What the watch runs there is what the steps lose, whatever else the machine does.
    """
    folder.mkdir(parents=True)
    _save_floats(folder / "checkpoint_1.pt")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})  # the watch inherits it
    try:
        shares = [_share(folder) for _ in range(rounds)]
    finally:
        os.sched_setaffinity(0, before)
    named = "search for NaN and checksums, of step time"
    return [Figure(name=named, value=100 * statistics.median(shares), unit="%", goal=1)]


def _share(folder: Path) -> float:
    """Return the part of the time of steps in which the watch runs on their processor."""
    for manifest in folder.parent.glob(f".{folder.name}.holdfast-*"):
        manifest.unlink()
    watch = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "checkpoint", "watch", str(folder), "--cpu-limit=100"],
        stdout=subprocess.DEVNULL,
    )
    try:
        while not _is_reading(watch.pid):
            time.sleep(0.01)
        begun, ran = time.perf_counter(), _ran_s(watch.pid)
        while time.perf_counter() < begun + STEPS_S:
            pass
        share = (_ran_s(watch.pid) - ran) / (time.perf_counter() - begun)
        is_done = any(folder.parent.glob(f".{folder.name}.holdfast-manifest*"))
        assert not is_done, "the checkpoint is too small for this measurement"
        return share
    finally:
        watch.kill()
        watch.wait()


def _ran_s(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


def _is_reading(pid: int) -> bool:
    """Whether the watch has the lowest priority and has read some of the checkpoint."""
    with suppress(OSError):
        if os.sched_getscheduler(pid) == os.SCHED_IDLE:
            return any(
                os.readlink(link).endswith(".pt") for link in Path(f"/proc/{pid}/fd").iterdir()
            )
    return False


def _save_floats(path: Path) -> None:
    import torch  # noqa: PLC0415 - takes a second

    torch.save({"weight": torch.randn(SEARCHED_BYTES // 4)}, path)
    os.utime(path, (time.time() - 60,) * 2)
