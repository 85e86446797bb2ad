"""Reverse proxies of the API: who may send ``X-Forwarded-For`` and ``X-Forwarded-Proto``."""

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from holdfast.apps.api.networks import ProxyNetwork

_REFUSED: Final = (
    "this address may not use plain HTTP; use the address of the proxy, or name the proxy with "
    "--behind-proxy\n"
)


class TrustedProxies:
    """ASGI application that uses the headers of trusted proxies, and no others.

    Clients that are neither a proxy nor on this machine are refused, because their requests would
    be readable on the network; health probes are answered.
    """

    def __init__(self, app: ASGIApp, proxies: Sequence[ProxyNetwork]) -> None:
        self._app = app
        inner: Any = app  # Uvicorn's types of ASGI differ from Starlette's
        trusted: Any = ProxyHeadersMiddleware(inner, [one.text for one in proxies])
        self._trusted: ASGIApp = trusted
        self._networks = [ipaddress.ip_network(one.text) for one in proxies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        peer = _address(scope)
        if peer is not None and any(peer in one for one in self._networks):
            await self._trusted(scope, receive, send)
        elif peer is not None and (peer.is_loopback or scope["path"] == "/healthz"):
            await self._app(scope, receive, send)
        else:
            refused = PlainTextResponse(_REFUSED, status_code=403, headers={"connection": "close"})
            await refused(scope, receive, send)


def _address(scope: Scope) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    client = scope.get("client")
    try:
        return ipaddress.ip_address(client[0]) if client else None
    except ValueError:
        return None
