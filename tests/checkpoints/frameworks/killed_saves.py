"""Kills real saves at random moments; the framework loads what Holdfast then chooses.

    python killed_saves.py FOLDER ROUNDS KIND...

Prints how many rounds there were, and in how many an incomplete checkpoint was moved away. Fails if
the framework cannot load the chosen one, if it is not what was saved (every value of a checkpoint
is its step), or if it is older than one whose save had returned.
"""

import gc
import mmap
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import killed_kinds_apart
from killed_kind import Kind

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.engine.checkpoint_guard import guard
from holdfast.kit.free_ports import free_port
from holdfast.model.checkpoints import Checkpoint, Depth
from holdfast.model.errors import BackendError


def kind_of(name: str) -> Kind:
    if name in killed_kinds_apart.KINDS:
        return killed_kinds_apart.KINDS[name]()
    from killed_kinds import KINDS  # noqa: PLC0415 - needs torch

    return KINDS[name]()


def forked(ranks: int, act: Callable[[int], None]) -> list[int]:
    """Run in processes of their own: frameworks start threads, which must not be in the next one.

    Each is killed with its children. Ranks of a process group have the variables of torchrun.
    """
    processes = []
    shared = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for rank in range(max(ranks, 1)):
        process = os.fork()
        if process:
            processes.append(process)
            continue
        code = 1
        try:
            os.setpgid(0, 0)
            if ranks:
                os.environ |= {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            act(rank)
            code = 0
        except BaseException:  # noqa: BLE001 - the process ends without the clean-up of its parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return processes


def save(folder: Path, kind: Kind, completed: mmap.mmap, rank: int) -> None:
    """Save one step after another, and keep the last one whose save returned on the first rank."""
    for step in kind.save(folder):
        if rank == 0:
            completed[:] = step.to_bytes(8)


def step_of(one: Checkpoint | None) -> int:
    """The step of a checkpoint, of which the one of Ray Train has none but in the name here."""
    if one is None:
        return 0
    return one.step if one.step is not None else int(one.name.rpartition("_")[2])


def check(folder: Path, one: Checkpoint, kind: Kind) -> None:
    tensors = list(kind.load(folder / one.name))
    assert tensors
    for tensor in tensors:
        assert bool((tensor == step_of(one)).all()), (one.name, tensor)


def kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def killed(folder: Path, kind: Kind) -> bool:
    """One save after another until the process is killed; whether that left something behind."""
    folder.mkdir(parents=True)
    completed = mmap.mmap(-1, 8)
    processes = forked(kind.ranks, partial(save, folder, kind, completed))
    while not any(folder.iterdir()):
        for process in processes:
            assert os.waitpid(process, os.WNOHANG) == (0, 0), "the process ended before a save"
        time.sleep(0.001)
    time.sleep(random.uniform(0.0, kind.longest))
    for process in processes:
        kill(process)
    for process in processes:
        _, status = os.waitpid(process, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the process had ended"
    try:
        found = guard(CheckpointDirectory(folder), Depth.HASHES, quiet_since=None)
    except BackendError:  # a person has to choose
        if not kind.is_asked(folder):
            raise
        return False
    one, newest = found.choice.resume, int.from_bytes(completed[:])
    assert step_of(one) >= newest, (f"{folder}: step {newest} was saved", found)
    if one is not None:
        for process in forked(kind.ranks, lambda _: check(folder, one, kind)):
            _, status = os.waitpid(process, 0)
            kill(process)  # its children, such as the process of DLRover that saves
            assert os.waitstatus_to_exitcode(status) == 0, f"{folder / one.name} cannot be loaded"
        loaded = CheckpointDirectory(folder).survey().loaded
        assert loaded is not None
        assert loaded.name == one.name, (loaded.name, one.name)
    kind.clean(folder)
    return bool(found.moved)


def main() -> None:
    warnings.simplefilter("ignore")
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}  # no look-up of its name
    folder, rounds = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    for name in sys.argv[3:]:
        gc.disable()  # for the imports: they leave next to nothing to collect
        kind = kind_of(name)
        gc.freeze()  # no collection in a process of a round visits what was imported
        gc.enable()
        moved = sum(
            killed(folder / f"{name}-{number}" / kind.inside, kind) for number in range(rounds)
        )
        sys.stdout.write(f"{name}: {rounds} kills, {moved} incomplete checkpoints moved away\n")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # Python's own exit takes a second to destroy what was imported
