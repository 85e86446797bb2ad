"""Deterministic training steps of a transformer block, to compare nodes bit by bit.

``python -m holdfast.adapters.host.replay_steps STEPS`` prints the lines of ``replay_results``: with
PyTorch on each of the node's GPUs, or else on one core, and without PyTorch in plain Python. All
inputs come from a fixed seed. Each step changes the weights, so an error stays in all later ones.
"""

import hashlib
import math
import operator
import os
import random
import struct
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Final

from holdfast.adapters.host.replay_kind import replay_kind
from holdfast.decisions.replay_results import PRINTED

_SEED: Final = 20260101
_RATE: Final = 0.01
_ON_GPU: Final = (16, 512, 2048)
_ON_CPU: Final = (4, 32, 128)
"""Batch, length and width of the block: 10^12 and 10^8 products in a step."""

_PLAIN: Final = (12, 24)
"""Length and width in plain Python: 10^5 products in a step."""

Row = list[float]


def main(argv: Sequence[str]) -> int:
    """Print the results of the steps. Returns the exit status."""
    count = int(argv[0])
    if find_spec("torch") is None:
        _print(f"on {replay_kind()}")
        for step, digest in enumerate(plain_steps(count)):
            _print(f"{step} cpu {digest}")
        return 0
    import torch  # noqa: PLC0415 - takes seconds, and may not be installed

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS may vary
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    _print(f"on {replay_kind()}")
    for device in gpus or ["cpu"]:
        for step, digest in enumerate(torch_steps(count, device)):
            _print(f"{step} {device} {digest}")
    return 0


def torch_steps(count: int, device: str) -> Iterator[str]:
    """Yield the digest of loss and weights after each step on a device.

    Every second step uses bfloat16 on a GPU, whose tensor cores are other circuits.
    """
    import torch  # noqa: PLC0415 - takes seconds, and may not be installed
    from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415 - takes seconds, and may not be installed

    # As use_deterministic_algorithms, which also imports the compiler, in 1.4 s.
    torch.set_deterministic_debug_mode("error")
    torch.set_float32_matmul_precision("highest")
    torch.set_num_threads(1)  # the order of sums depends on the number of threads
    torch.manual_seed(_SEED)
    batch, length, width = _ON_CPU if device == "cpu" else _ON_GPU
    block = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True).to(
        device
    )
    for step in range(count):
        inputs = torch.randn(batch, length, width).to(device)
        is_half = device != "cpu" and step % 2 == 1
        with sdpa_kernel(SDPBackend.MATH), torch.autocast("cuda", torch.bfloat16, enabled=is_half):
            loss = block(inputs).float().square().mean()
        loss.backward()
        digest = hashlib.sha256(struct.pack("<f", float(loss)))
        with torch.no_grad():
            for weight in block.parameters():
                weight.sub_(weight.grad, alpha=_RATE)
                weight.grad = None
                digest.update(weight.detach().cpu().contiguous().numpy().tobytes())
        yield digest.hexdigest()


def plain_steps(count: int) -> Iterator[str]:
    """Yield the digest of outputs and weights after each step, computed by one core.

    Only operations that IEEE 754 rounds correctly are used: exp and tanh vary with the C library.
    """
    draw = random.Random(_SEED)  # noqa: S311 - reproducible inputs
    length, width = _PLAIN
    weights = [_drawn(draw, width, width) for _ in range(4)]
    for _ in range(count):
        inputs = _drawn(draw, length, width)
        query, key, value = (_product(inputs, weight) for weight in weights[:3])
        scores = [_shares(row) for row in _product(query, _transposed(key))]
        mixed = _product(scores, value)
        activated = [[one / (1.0 + abs(one)) for one in row] for row in mixed]
        outputs = _product(activated, weights[3])
        change = _product(_transposed(inputs), outputs)
        weights = [
            [
                [one - _RATE * delta for one, delta in zip(row, deltas, strict=True)]
                for row, deltas in zip(weight, change, strict=True)
            ]
            for weight in weights
        ]
        digest = hashlib.sha256()
        for matrix in (outputs, *weights):
            for row in matrix:
                digest.update(struct.pack(f"<{len(row)}d", *row))
        yield digest.hexdigest()


def _drawn(draw: random.Random, rows: int, columns: int) -> list[Row]:
    return [[draw.uniform(-0.5, 0.5) for _ in range(columns)] for _ in range(rows)]


def _product(left: list[Row], right: list[Row]) -> list[Row]:
    columns = _transposed(right)
    return [[math.fsum(map(operator.mul, row, column)) for column in columns] for row in left]


def _transposed(matrix: list[Row]) -> list[Row]:
    return [list(column) for column in zip(*matrix, strict=True)]


def _shares(row: Row) -> Row:
    squares = [1.0 + one * one for one in row]
    whole = math.fsum(squares)
    return [one / whole for one in squares]


def _print(text: str) -> None:
    sys.stdout.write(f"{PRINTED} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
