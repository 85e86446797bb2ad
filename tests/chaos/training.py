"""The job of one machine: two ranks that exchange their weights in each step.

``python training.py END``: they take steps until the file END exists, and write the last step and
their weights beside it, with the step that they began at. Weights depend on every step of both
ranks, so a step that was done twice or left out, and a damaged checkpoint, show in the end. The
ranks load what the tracker of the checkpoints names, as Megatron does, and check nothing
themselves.

A rank that begins while the same one of another attempt is alive makes a file ``overlap``.
"""

import fcntl
import os
import socket
import sys
import time
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "slurm"))
from megatron_training import loaded, save

from holdfast import training

PAUSE_S = 0.2
EVERY = 10


def main() -> None:
    end, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    folder = Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
    _alone = _locked(end, rank)
    step, weights = loaded(folder, rank)
    began, peer = step, _peer(rank)
    sys.stdout.write(f"begins at step {step}\n")
    sys.stdout.flush()
    goes_on = True
    while goes_on:
        step += 1
        others, goes_on = _exchanged(peer, rank, step, weights, end)
        weights = _after(step, rank, weights, others)
        training.step(step)
        if step % EVERY == 0:
            save(folder, rank, 2, step, weights)
        time.sleep(PAUSE_S)
    end.with_name(f"result-{rank}").write_text(f"{step} {weights} {began}", encoding="ascii")


def undisturbed(steps: int) -> list[int]:
    """Weights of the ranks after that many steps without a disturbance."""
    first, second = 0, 1
    for step in range(1, steps + 1):
        first, second = _after(step, 0, first, second), _after(step, 1, second, first)
    return [first, second]


def _after(step: int, rank: int, weights: int, others: int) -> int:
    return (weights * 31 + others * 17 + step + rank) % 1_000_003


def _locked(end: Path, rank: int) -> TextIOWrapper:
    alive = end.with_name(f"alive-{rank}").open("w", encoding="ascii")
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        end.with_name("overlap").touch()
        raise
    return alive


def _peer(rank: int) -> tuple[socket.socket, TextIOWrapper]:
    """The connection to the other rank, and its lines."""
    address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
    if rank == 0:
        peer, _ = socket.create_server(address).accept()
        return peer, peer.makefile("r", encoding="ascii")
    while True:
        with suppress(OSError):
            peer = socket.create_connection(address)
            if peer.getsockname() != address:  # not connected to itself, as TCP may
                return peer, peer.makefile("r", encoding="ascii")
            peer.close()
        time.sleep(0.1)


def _exchanged(
    peer: tuple[socket.socket, TextIOWrapper], rank: int, step: int, weights: int, end: Path
) -> tuple[int, bool]:
    """Weights of the other rank before this step, and whether rank 0 wants another one."""
    goes_on = int(rank == 0 and not end.exists())
    connection, lines = peer
    connection.sendall(f"{step} {weights} {goes_on}\n".encode("ascii"))
    line = lines.readline().split()
    if line[:1] != [str(step)]:
        sys.exit(f"rank {rank} lost the other at step {step}: {line}")
    return int(line[1]), bool(goes_on if rank == 0 else int(line[2]))


if __name__ == "__main__":
    main()
