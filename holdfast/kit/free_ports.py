"""Finds free TCP ports."""

import socket
from pathlib import Path
from typing import Final

from holdfast.kit.jitter import JITTER
from holdfast.model.errors import BackendError

_LOWEST: Final = 20_000
_FEWEST: Final = 1000
"""Ports below the ephemeral range that are enough for the jobs of a machine."""

_ANY: Final = range(_LOWEST, 61_000)
"""Ports where the ephemeral range leaves too few, as with ``1024 65535``."""

_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES: Final = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on the port at all addresses now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))  # never listens
        except OSError:
            return False
    return True


def free_port(ephemeral: Path = _EPHEMERAL) -> int:
    """Return a port that is free now.

    The port is below the kernel's ephemeral range, if that leaves enough of them, so that no
    connection of another program takes it between now and the start of the rank that listens on it.

    Args:
        ephemeral: file with the ephemeral range.

    Raises:
        BackendError: no port is free.

    """
    below = range(_LOWEST, int(ephemeral.read_text(encoding="ascii").split()[0]))
    ports = below if len(below) >= _FEWEST else _ANY
    for _ in range(_TRIES):
        port = JITTER.choice(ports)
        if is_free(port):
            return port
    raise BackendError(f"no free TCP port was found from {ports[0]} to {ports[-1]}")
