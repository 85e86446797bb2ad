"""DLRover's flash checkpoint of a DDP model: its checkpointer and the process that saves for it.

With a second argument, loads with it from the storage instead, and prints what it loaded.
"""

import os
import sys
import time
from pathlib import Path

os.environ |= {
    "ELASTIC_JOB_NAME": f"recording-{os.getpid()}",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
}

import torch
from dlrover.python.common.multi_process import SharedQueue
from dlrover.trainer.torch.flash_checkpoint.checkpointer import StorageType
from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer
from dlrover.trainer.torch.flash_checkpoint.engine import CheckpointEngine, start_saver_process


def start_saver() -> None:
    """Start the process that saves. It loses what is sent to it before its first answer."""
    CheckpointEngine.saver_proc = start_saver_process()
    while not SharedQueue("factory").empty():
        time.sleep(0.05)


def checkpointer(folder: Path) -> DdpCheckpointer:
    start_saver()
    return DdpCheckpointer(str(folder))


def write(folder: Path) -> None:
    own = checkpointer(folder)
    for step in (100, 200, 300):
        torch.manual_seed(step)
        state = {"model": {"weight": torch.randn(8, 8)}, "step": step}
        save_and_wait(own, folder, step, state)


def save_and_wait(own: DdpCheckpointer, folder: Path, step: int, state: dict) -> None:
    tracker = folder / "dlrover_latest.txt"
    own.save_checkpoint(step, state, storage_type=StorageType.DISK)
    end = time.monotonic() + 60
    while not tracker.exists() or tracker.read_text() != str(step):
        assert time.monotonic() < end, f"step {step} was not saved"
        time.sleep(0.01)


def main() -> None:
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        state = checkpointer(folder).load_checkpoint()
        sys.stdout.write(f"{state['step']} {float(state['model']['weight'].sum()):.6f}\n")
    else:
        write(folder / "ddp")


if __name__ == "__main__":
    main()
