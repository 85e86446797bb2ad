"""Kills real saves of torch at random moments; torch loads what Holdfast then chooses.

    python killed_saves.py FOLDER ROUNDS

Prints how many rounds there were, in how many an incomplete checkpoint was moved away, and fails if
torch cannot load the chosen one or it is not what was saved.
"""

import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.engine.checkpoint_guard import guard
from holdfast.model.checkpoints import Depth

PARTS, ITEMS = 24, 4096


def state(step: int) -> dict[str, torch.Tensor]:
    return {f"part_{part}": torch.full((ITEMS,), float(step)) for part in range(PARTS)}


def save(folder: Path, kind: str) -> None:
    for step in range(1, 1000):
        if kind == "dcp":
            dcp.save(state(step), checkpoint_id=folder / f"step_{step:04d}", no_dist=True)
        else:
            torch.save(state(step), folder / f"step_{step:04d}.pt")


def load(path: Path, kind: str) -> dict[str, torch.Tensor]:
    if kind == "torch":
        return torch.load(path)
    loaded = state(0)
    dcp.load(loaded, checkpoint_id=path, no_dist=True)
    return loaded


def killed(folder: Path, kind: str) -> bool:
    """One save after another until the process is killed; whether that left something behind."""
    folder.mkdir(parents=True)
    process = os.fork()
    if process == 0:
        save(folder, kind)
        os._exit(1)
    while not any(folder.iterdir()):
        time.sleep(0.001)
    time.sleep(random.uniform(0.0, 0.08))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    found = guard(CheckpointDirectory(folder), Depth.HASHES, quiet_since=None)
    one = found.choice.resume
    if one is not None:
        for name, tensor in load(folder / one.name, kind).items():
            assert torch.equal(tensor, state(one.step)[name]), f"{one.name}: {name}"
        later = [path for path in folder.iterdir() if path.name > one.name]
        assert later == [], later
    return bool(found.moved)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    for kind in ("dcp", "torch"):
        moved = sum(killed(folder / f"{kind}-{number}", kind) for number in range(rounds))
        sys.stdout.write(f"{kind}: {rounds} kills, {moved} incomplete checkpoints moved away\n")


if __name__ == "__main__":
    main()
