"""The deep health check of a local machine: whether it computes, remembers and stores correctly.

Run as a process on the machine. Each part does a piece of work whose right answer is known and
compares. Exit code 0 if all parts passed, 1 if one did not; the last line says which.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

ROUNDS: Final = 20_000
"""SHA-256 rounds for each core: about 20 ms of arithmetic."""

MEMORY_BYTES: Final = 64 << 20
"""Memory that is written and read back: more than any cache of today holds."""

DISK_BYTES: Final = 16 << 20
"""Bytes that are written, flushed and read back."""


def chain(rounds: int) -> str:
    """SHA-256 applied ``rounds`` times to nothing: any wrong bit on the way changes the end."""
    digest = b""
    for _ in range(rounds):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()


def check_processors() -> str:
    """Whether all cores agree; returns what is wrong, or nothing."""
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores) as pool:
        answers = list(pool.map(chain, [ROUNDS] * (2 * cores)))
    wrong = sum(answer != answers[0] for answer in answers)
    return f"{wrong} of {len(answers)} computations gave another result" if wrong else ""


def check_memory() -> str:
    """Whether memory gives back what it was given; returns what is wrong, or nothing."""
    for pattern in (b"\x55", b"\xaa"):
        block = bytearray(pattern * MEMORY_BYTES)
        if block.count(pattern) != MEMORY_BYTES:
            return f"memory changed pattern {pattern.hex()}"
    return ""


def check_disk(directory: Path) -> str:
    """Whether the disk gives back what it was given; returns what is wrong, or nothing."""
    path = directory / "check.data"
    data = hashlib.shake_256(b"holdfast").digest(DISK_BYTES)
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return "" if path.read_bytes() == data else f"{path} was read back differently"
    except OSError as error:
        return f"{path}: {error}"
    finally:
        path.unlink(missing_ok=True)


def main(argv: list[str]) -> int:
    """Run all parts for the machine whose directory is the first argument."""
    parts: dict[str, Callable[[], str]] = {
        "processors": check_processors,
        "memory": check_memory,
        "disk": lambda: check_disk(Path(argv[0])),
    }
    wrong = []
    for name, part in parts.items():
        problem = part()
        print(f"{name}: {problem or 'passed'}", flush=True)  # noqa: T201 - its log is its output
        wrong += [f"{name}: {problem}"] if problem else []
    if wrong:
        print("; ".join(wrong))  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
