"""TCP ports for the servers of tests."""

import fcntl
import itertools
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from holdfast.kit.free_ports import is_free

_BLOCK: Final = 200
_FIRST: Final = range(12_000, 20_000, _BLOCK)
"""Below the ports that ``holdfast.kit.free_ports`` chooses for jobs."""

_locked: Final[list[int]] = []
"""Descriptors of lock files, open until the process ends."""


def free_port() -> int:
    """Return a port that is free, and that no other process of the tests gets meanwhile.

    A port is often chosen long before its server listens, as that of a Slurm node that is powered
    off, or is free while its server restarts. Each process therefore has a block of its own, and
    uses its ports in turn.

    Raises:
        RuntimeError: all blocks are used, or no port of the own one is free.

    """
    ports = _own(os.getpid())
    for port in itertools.islice(ports, _BLOCK):
        if is_free(port):
            return port
    raise RuntimeError(f"each of the {_BLOCK} ports before {next(ports)} has a server")


@cache
def _own(_process: int) -> Iterator[int]:
    """The ports of a process, again and again. A forked one takes another block."""
    folder = Path(tempfile.gettempdir()) / f"holdfast-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for first in _FIRST:
        lock = os.open(folder / str(first), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            _locked.append(lock)
            return itertools.cycle(range(first, first + _BLOCK))
    raise RuntimeError(f"{len(_FIRST)} processes have ports for tests already, see {folder}")
