"""DLRover's flash checkpoint for FSDP and Megatron-LM, in one process each.

The files of FSDP are those of DCP. Megatron-LM is not on the package index: a state is passed to
DLRover under the path that Megatron-LM's ``save_checkpoint`` uses. DLRover writes all files and
trackers. With several ranks it needs its own master process. Its class for DeepSpeed fails with
DeepSpeed 0.19: ``save`` has no argument ``_use_new_zipfile_serialization``.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from dlrover.trainer.torch.flash_checkpoint.fsdp import FsdpShardCheckpointer
from dlrover.trainer.torch.flash_checkpoint.megatron import MegatronCheckpointer
from megatron.core import parallel_state
from torch.distributed.fsdp import FullyShardedDataParallel

STEPS = (100, 200, 300)


def fsdp(folder: Path) -> None:
    own = FsdpShardCheckpointer(str(folder), comm_backend="gloo")
    model = FullyShardedDataParallel(torch.nn.Linear(8, 8), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in STEPS:
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
        own.save_checkpoint(step, model, optimizer, {"step": step})
        wait(folder, step)


def megatron(folder: Path) -> None:
    parallel_state.initialize_model_parallel()
    own = MegatronCheckpointer(str(folder), comm_backend="gloo")
    for step in STEPS:
        torch.manual_seed(step)
        state = {"iteration": step, "model": {"weight": torch.randn(8, 8)}}
        path = folder / f"iter_{step:07d}/mp_rank_00/model_optim_rng.pt"
        own.save(state, str(path))
        own.engine.save_to_storage(step, own.state_dict, own.paths)
        wait(folder, step)


def wait(folder: Path, step: int) -> None:
    """Wait until the agent has written a step: it skips a save while the one before goes on."""
    tracker = folder / "dlrover_latest.txt"
    end = time.monotonic() + 120
    while not tracker.exists() or tracker.read_text() != str(step):
        assert time.monotonic() < end, f"step {step} was not saved"
        time.sleep(0.05)


KINDS = {"fsdp": fsdp, "megatron": megatron}


def main() -> None:
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        dist.init_process_group("gloo")
        KINDS[sys.argv[2]](folder / sys.argv[2])
        os._exit(0)  # the process that saves would be waited for
    for kind in KINDS:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
        command = [sys.executable, *launcher, __file__, str(folder), kind]
        job = f"recording-{os.getpid()}-{kind}"
        subprocess.run(command, check=True, env={**os.environ, "ELASTIC_JOB_NAME": job})


if __name__ == "__main__":
    main()
