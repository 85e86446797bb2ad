"""Trains a small GPT with DDP on gloo without end, and notes each step.

Arguments: folder. Appends a line ``PID RANK STEP SECONDS`` to ``steps`` there after each step, with
the monotonic clock of the machine, and resumes from ``state.pt``.
"""

import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed
from transformers import GPT2Config, GPT2LMHeadModel

_STEP_S = 0.05
_SAVE_EVERY = 10


def main() -> None:
    folder = Path(sys.argv[1])
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(0)
    net = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=256))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    saved, step = folder / "state.pt", 0
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    model = torch.nn.parallel.DistributedDataParallel(net)
    with open(folder / "steps", "a", encoding="ascii", buffering=1) as notes:
        while True:
            tokens = torch.randint(256, (2, 32))
            optimizer.zero_grad()
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            step += 1
            notes.write(f"{os.getpid()} {rank} {step} {time.monotonic()}\n")
            if rank == 0 and step % _SAVE_EVERY == 0:
                state = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step}, f"{saved}.new")
                os.replace(f"{saved}.new", saved)
            time.sleep(_STEP_S)


if __name__ == "__main__":
    main()
