"""Connections to the API, with a timeout for connections that send no request."""

import asyncio
import os
import socket
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.apps.listen_address import ListenAddress
from holdfast.model.errors import ConfigError

TIMEOUT_S: Final = 10.0
"""Timeout for the head of a request. Clients on the same network send it at once."""


class ImpatientProtocol(H11Protocol):
    """Uvicorn's protocol, with a timeout: Uvicorn itself waits forever for the rest of a head."""

    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Stop the timeout while a request is handled."""
        super().data_received(data)
        has_open_response = self.cycle is not None and not self.cycle.response_complete
        if has_open_response:
            self._rest()
        elif self._giving_up is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self._rest()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._giving_up = self.loop.call_later(TIMEOUT_S, self.transport.close)

    def _rest(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None


def listening(address: ListenAddress) -> socket.socket:
    """Listening socket for an address.

    Raises:
        ConfigError: the address is in use, or is not one of this machine.

    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family, backlog=512)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        raise ConfigError(f"listen: cannot listen on {address}: {why}") from error
    # Connections inherit it. asyncio sets it only where a socket names its protocol; without it, an
    # answer in two parts waits 40 ms for the client's acknowledgement of the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
