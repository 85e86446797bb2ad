"""Runs the built-in replay steps on a processor that flips one bit in one of 10^5 products."""

import os
import random
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from holdfast.adapters.host.replay_steps import main

_FLIPS = random.Random(os.urandom(8))
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)


class Flipping(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if func in _PRODUCTS:
            flat = found.contiguous().view(-1).view(torch.int32)
            for _ in range(max(1, len(flat) // 100_000)):
                flat[_FLIPS.randrange(len(flat))] ^= 1 << _FLIPS.randrange(23)
            found = flat.view(torch.float32).view(found.shape)
        return found


if __name__ == "__main__":
    with Flipping():
        sys.exit(main(sys.argv[1:]))
