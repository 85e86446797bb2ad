"""Saves of torch and safetensors to a disk that gets full; they load what Holdfast then chooses.

    python full_disk_saves.py FOLDER ROUNDS KIND...

Kinds are dcp, torch and safetensors. The disk is a small tmpfs in FOLDER, or without permission to
mount one, a limit of the size of each file. Fails if the chosen checkpoint cannot be loaded, if it
is not the newest one that was saved without an error, or if such a one was moved away.
"""

import gc
import os
import random
import resource
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.api import CheckpointException

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.engine.checkpoint_guard import guard
from holdfast.model.checkpoints import Depth

ITEMS = 4096
LARGEST = 1 << 20
"""Maximum bytes of the disk, or of a file."""


def state(step: int) -> dict[str, torch.Tensor]:
    """Tensors of a step; each step has more than the one before, so that a save fails some day."""
    return {f"part_{part}": torch.full((ITEMS,), float(step)) for part in range(step)}


def save(folder: Path, kind: str, done: Path) -> None:
    """Save until it fails, and record the steps that were saved."""
    for step in range(1, 100):
        name = f"step_{step:04d}"
        if kind == "dcp":
            dcp.save(state(step), checkpoint_id=folder / name, no_dist=True)
        elif kind == "safetensors":
            save_file(state(step), folder / f"{name}.safetensors")
        else:
            torch.save(state(step), folder / f"{name}.pt")
        done.write_text(str(step))


def load(path: Path, kind: str, step: int) -> dict[str, torch.Tensor]:
    if kind == "torch":
        return torch.load(path)
    if kind == "safetensors":
        return load_file(path)
    loaded = {name: torch.zeros_like(tensor) for name, tensor in state(step).items()}
    dcp.load(loaded, checkpoint_id=path, no_dist=True)
    return loaded


def saved_in_child(folder: Path, kind: str, done: Path, limit: int | None) -> None:
    process = os.fork()
    if process:
        _, status = os.waitpid(process, 0)
        assert os.waitstatus_to_exitcode(status) == 3, "no save failed"
        return
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        save(folder, kind, done)
    except (OSError, RuntimeError, CheckpointException, SafetensorError):
        os._exit(3)
    os._exit(1)


def check(folder: Path, kind: str, newest: int) -> int:
    found = guard(CheckpointDirectory(folder), Depth.HASHES, quiet_since=None)
    one = found.choice.resume
    assert (one.step if one is not None else 0) == newest, (one, newest)
    assert all(int(name.split("_")[1][:4]) > newest for name in found.moved), found.moved
    if one is not None:
        for name, tensor in load(folder / one.name, kind, newest).items():
            assert torch.equal(tensor, state(newest)[name]), f"{one.name}: {name}"
    return len(found.moved)


def filled(top: Path, kind: str, number: int) -> int:
    disk, done = top / f"{kind}-{number}", top / f"{kind}-{number}.done"
    disk.mkdir(parents=True)
    size = random.randint(LARGEST // 16, LARGEST)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "holdfast-test", str(disk)]
    is_mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        folder = disk / "run"
        folder.mkdir()
        saved_in_child(folder, kind, done, None if is_mounted else size)
        return check(folder, kind, int(done.read_text()) if done.exists() else 0)
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    top, rounds = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    for kind in sys.argv[3:]:
        moved = sum(filled(top, kind, number) for number in range(rounds))
        sys.stdout.write(
            f"{kind}: {rounds} full disks, {moved} incomplete checkpoints moved away\n"
        )


if __name__ == "__main__":
    gc.freeze()  # no collection visits what was imported
    main()
    sys.stdout.flush()
    os._exit(0)  # Python's own exit takes half a second to destroy what was imported
