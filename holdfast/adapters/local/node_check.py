"""Deep health check of a local machine: tests processors, memory and disk.

Run as a process on the machine. Each part does work whose correct result is known, and compares.
Exit code 0 if all parts passed, 1 if one failed, else 2 if the system lacked what a part needs, as
free space; the last line names the part.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final

from holdfast.kit.lacking import LACKING
from holdfast.model.deep_checks import Outcome

ROUNDS: Final = 20_000
"""SHA-256 rounds per core: about 20 ms of arithmetic."""

MEMORY_BYTES: Final = 64 << 20
"""Bytes of memory that are written and read back: more than any current cache."""

DISK_BYTES: Final = 16 << 20
"""Bytes that are written, flushed and read back."""

NOT_TESTED: Final = 2
"""Exit code if a part could not be tested, and none failed."""


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
    finally:
        path.unlink(missing_ok=True)


def tested(part: Callable[[], str]) -> tuple[Outcome, str]:
    """Return the outcome of a part, and why it did not pass."""
    try:
        problem = part()
    except (MemoryError, BrokenProcessPool) as error:  # a process of it was killed for memory
        return Outcome.UNKNOWN, f"not tested: {str(error) or 'no memory is left'}"
    except OSError as error:
        if error.errno in LACKING:
            return Outcome.UNKNOWN, f"not tested: {error}"
        problem = str(error)
    return (Outcome.FAILED, problem) if problem else (Outcome.PASSED, "")


def main(argv: list[str]) -> int:
    """Run all parts for the machine whose directory is the first argument."""
    parts: dict[str, Callable[[], str]] = {
        "processors": check_processors,
        "memory": check_memory,
        "disk": lambda: check_disk(Path(argv[0])),
    }
    wrong, outcomes = [], set()
    for name, part in parts.items():
        outcome, problem = tested(part)
        print(f"{name}: {problem or 'passed'}", flush=True)  # noqa: T201 - its log is its output
        wrong += [f"{name}: {problem}"] if problem else []
        outcomes.add(outcome)
    if wrong:
        print("; ".join(wrong))  # noqa: T201
    if Outcome.FAILED in outcomes:
        return 1
    return NOT_TESTED if Outcome.UNKNOWN in outcomes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
