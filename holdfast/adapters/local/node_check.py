"""Deep health check of a local machine: tests processors, memory and disk.

Run as a process on the machine. Each part does work whose correct result is known, and compares.
Exit code 0 if all parts passed, 1 if one failed; the last line names it.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

ROUNDS: Final = 20_000
"""SHA-256 rounds per core: about 20 ms of arithmetic."""

MEMORY_BYTES: Final = 64 << 20
"""Bytes of memory that are written and read back: more than any current cache."""

DISK_BYTES: Final = 16 << 20
"""Bytes that are written, flushed and read back."""


def chain(rounds: int) -> str:
    """Return SHA-256 applied ``rounds`` times to no bytes: any wrong bit changes the result."""
    digest = b""
    for _ in range(rounds):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()


def check_processors() -> str:
    """Check that all cores compute the same result; returns the error, or an empty text."""
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores) as pool:
        answers = list(pool.map(chain, [ROUNDS] * (2 * cores)))
    wrong = sum(answer != answers[0] for answer in answers)
    return f"{wrong} of {len(answers)} computations gave another result" if wrong else ""


def check_memory() -> str:
    """Check that memory holds what was written; returns the error, or an empty text."""
    for pattern in (b"\x55", b"\xaa"):
        block = bytearray(pattern * MEMORY_BYTES)
        if block.count(pattern) != MEMORY_BYTES:
            return f"memory changed pattern {pattern.hex()}"
    return ""


def check_disk(directory: Path) -> str:
    """Check that the disk holds what was written; returns the error, or an empty text."""
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
