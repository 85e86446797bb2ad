"""Finds free TCP ports on the loopback address."""

import socket
from pathlib import Path
from typing import Final

from holdfast.kit.jitter import JITTER
from holdfast.model.errors import BackendError

_LOWEST: Final = 20_000
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES: Final = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a port that is free now.

    The port is below the kernel's ephemeral range, so that no connection of another
    program takes it between now and the start of the rank that listens on it.

    Raises:
        BackendError: no port is free.

    """
    highest = int(_EPHEMERAL.read_text(encoding="ascii").split()[0]) - 1
    for _ in range(_TRIES):
        port = JITTER.randint(min(_LOWEST, highest), highest)
        if is_free(port):
            return port
    raise BackendError(f"no free TCP port was found from {_LOWEST} to {highest}")
