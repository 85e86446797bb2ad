"""DLRover's flash checkpoint of a DDP model on two nodes; it loads what its tracker names.

The process that saves is a child of the rank, as it always is without ``dlrover-run``. DLRover
names its sockets and shared memory by ``TORCHELASTIC_RUN_ID`` alone: nodes of one machine share
them without it. It loses what is sent to that process while it starts: its first answer is waited
for.
"""

import os
import time
import zlib

os.environ["TORCHELASTIC_RUN_ID"] = (  # other tests run jobs of the same name
    f"test-{zlib.crc32(os.environ['HOLDFAST_CHECKPOINT_DIR'].encode())}-{os.environ['NODE_RANK']}"
)

import torch
import torch.distributed as dist
from dlrover.python.common.multi_process import SharedQueue
from dlrover.trainer.torch.flash_checkpoint.checkpointer import StorageType
from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer
from dlrover.trainer.torch.flash_checkpoint.engine import CheckpointEngine, start_saver_process
from saving import FOLDER, LAST, SAVES, report_resume, report_save

TRACKER = FOLDER / "dlrover_latest.txt"


def main():
    dist.init_process_group("gloo")
    CheckpointEngine.saver_proc = start_saver_process()
    while not SharedQueue("factory").empty():
        time.sleep(0.05)
    own = DdpCheckpointer(str(FOLDER), comm_backend="gloo")
    model, step = torch.nn.Linear(64, 64), 0
    if state := own.load_checkpoint():
        model.load_state_dict(state["model"])
        step = state["step"]
    report_resume(step, model.state_dict())
    while step < LAST:
        step += 1
        torch.nn.init.normal_(model.weight)
        if step in SAVES:
            save(own, model, step)
    dist.destroy_process_group()


def save(own, model, step):
    dist.broadcast(model.weight.data, 0)
    state = {"step": step, "model": model.state_dict()}
    own.save_checkpoint(step, state, storage_type=StorageType.DISK)
    while not TRACKER.exists() or TRACKER.read_text() != str(step):
        time.sleep(0.05)
    report_save(step, model.state_dict(), str(step), FOLDER / f"{step}/rank_0.pt")


if __name__ == "__main__":
    main()
