"""Trains a small model with PyTorch DDP, saves each step, and fails once as asked.

Arguments: folder, step of the failure (-1: none), kind of the failure: kill, raise, or
node, which kills the launcher. Rank 1 fails.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import distributed

STEPS = 12


def main() -> None:
    folder, at, kind = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    rank = distributed.get_rank()
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    saved, first = folder / "state.pt", 0
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    for step in range(first, STEPS):
        if step == at and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            if kind != "raise":
                os.kill(os.getpid() if kind == "kill" else os.getppid(), signal.SIGKILL)
            raise RuntimeError("injected")
        generator = torch.Generator().manual_seed(1000 * step + rank)
        inputs = torch.randn(16, 8, generator=generator)
        optimizer.zero_grad()
        (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step + 1}, f"{saved}.new")
            os.replace(f"{saved}.new", saved)
        distributed.barrier()
    if rank == 0:
        weights = b"".join(one.numpy().tobytes() for one in net.state_dict().values())
        (folder / "weights").write_bytes(weights)
    distributed.destroy_process_group()
    os._exit(0)  # the exit of Python takes a third of the processor time


main()
