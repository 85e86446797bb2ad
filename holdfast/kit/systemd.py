"""Notifications to systemd, which restarts a service that stops sending them (``WatchdogSec``)."""

import os
import socket
from contextlib import suppress


def notify_alive() -> None:
    """Reset the watchdog of this service; do nothing outside of systemd.

    Source: sd_notify(3). ``NOTIFY_SOCKET`` is a path, or a name of the abstract namespace after
    ``@``. A lost notification is not an error: systemd expects several in each ``WatchdogSec``.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.setblocking(False)  # noqa: FBT003 - the socket's own signature
        client.sendto(b"WATCHDOG=1", address)
