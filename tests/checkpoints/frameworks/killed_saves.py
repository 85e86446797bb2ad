"""Kills real saves at random moments; the framework loads what Holdfast then chooses.

    python killed_saves.py FOLDER ROUNDS KIND...

Prints how many rounds there were, and in how many an incomplete checkpoint was moved away. Fails if
the framework cannot load the chosen one or it is not what was saved: every value of a checkpoint is
its step.
"""

import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from killed_kinds import KINDS, Kind

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.engine.checkpoint_guard import guard
from holdfast.model.checkpoints import Checkpoint, Depth


def forked(act: Callable[[], None]) -> int:
    """Run in a process of its own: frameworks start threads, which must not be in the next one."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            act()
            code = 0
        except Exception:  # noqa: BLE001 - the process ends without the clean-up of its parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return process


def check(folder: Path, one: Checkpoint, kind: Kind) -> None:
    tensors = list(kind.load(folder / one.name))
    assert tensors
    for tensor in tensors:
        assert bool((tensor == one.step).all()), (one.name, tensor)


def killed(folder: Path, kind: Kind) -> bool:
    """One save after another until the process is killed; whether that left something behind."""
    folder.mkdir(parents=True)
    process = forked(partial(kind.save, folder))
    while not any(folder.iterdir()):
        assert os.waitpid(process, os.WNOHANG) == (0, 0), "the process ended before its first save"
        time.sleep(0.001)
    time.sleep(random.uniform(0.0, kind.longest))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    found = guard(CheckpointDirectory(folder), Depth.HASHES, quiet_since=None)
    one = found.choice.resume
    if one is not None:
        _, status = os.waitpid(forked(partial(check, folder, one, kind)), 0)
        assert os.waitstatus_to_exitcode(status) == 0, f"{folder / one.name} cannot be loaded"
        loaded = CheckpointDirectory(folder).survey().loaded
        assert loaded is not None
        assert loaded.name == one.name, (loaded.name, one.name)
    return bool(found.moved)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder, rounds = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    for name in sys.argv[3:]:
        kind = KINDS[name]()
        moved = sum(
            killed(folder / f"{name}-{number}" / kind.inside, kind) for number in range(rounds)
        )
        sys.stdout.write(f"{name}: {rounds} kills, {moved} incomplete checkpoints moved away\n")


if __name__ == "__main__":
    main()
