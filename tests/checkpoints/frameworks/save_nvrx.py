"""NVRx saves local checkpoints on two ranks, one iteration after another, or loads the last one.

    python save_nvrx.py save|load FOLDER ITERATIONS

NVRx deletes an iteration once the next one is saved. Each rank also has the file of the other one.
"""

import os
import sys
from functools import partial
from pathlib import Path

import torch
from killed_nvrx_saves import forked, manager, resume, state


def save(start, folder: Path, rank: int, iterations: int) -> None:
    own = start(folder, rank)
    for iteration in range(1, iterations + 1):
        own.save(state(iteration, rank), iteration)


def main() -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # gloo resolves the name of the machine otherwise
    act = {"save": save, "load": resume}[sys.argv[1]]
    folder, iterations = Path(sys.argv[2]).resolve(), int(sys.argv[3])
    start = partial(manager, store=folder.with_name(f"store-{sys.argv[1]}"), has_replicas=True)
    for process in forked(lambda rank: act(start, folder, rank, iterations)):
        _, status = os.waitpid(process, 0)
        assert os.waitstatus_to_exitcode(status) == 0


if __name__ == "__main__":
    main()
