"""Kubernetes API client that the agent, the controller and the commands share.

Objects are plain dicts as the API server returned them. All methods are thread-safe.
"""

import http.client
import json
import socket
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from holdfast.adapters.kubernetes.client.errors import (
    ApiError,
    Json,
    Throttled,
    Unauthorized,
    Unreachable,
    api_error,
)
from holdfast.adapters.kubernetes.client.rate_limit import RateLimit
from holdfast.adapters.kubernetes.client.server import Connections, Server, in_cluster
from holdfast.adapters.kubernetes.client.watch import Watch
from holdfast.kit.backoff import Backoff
from holdfast.kit.jitter import JITTER

__all__ = ["Api", "Json", "RateLimit", "Server", "Watch", "in_cluster"]

Params = Mapping[str, str | int | Sequence[str]]
"""Query parameters of a call; booleans are spelled ``"true"``."""

TIMEOUT: Final = timedelta(seconds=10)
"""Timeout of a call including its retries; list and watch apply it to each page."""

PAGE: Final = 500
"""Page size of a list request, as in kubectl."""

_Body = Json | list[Json]

_BACKOFF: Final = Backoff(first=timedelta(seconds=0.1), longest=timedelta(seconds=2))
_SHORTEST_S: Final = 0.001  # a socket timeout of 0 means non-blocking
_PIECE: Final = 1 << 20
_GZIP: Final = 16 + zlib.MAX_WBITS  # zlib's window size that selects the gzip format


class Patch(StrEnum):
    """Patch type; the value is its media type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class ListPage(NamedTuple):
    """Page of a list. ``resource_version`` is that of the whole list: start a watch there."""

    items: list[Json]
    resource_version: str


class _Request(NamedTuple):
    verb: str
    path: str
    params: Params
    body: bytes | None = None
    media_type: str = "application/json"
    repeatable: bool = True
    """Whether the request is idempotent."""

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


class Api:
    """Client of one API server, with one identity.

    Paths are those of the API, such as ``/api/v1/nodes/a``; parameters go into the query.

    Every method raises ``Unreachable`` if no usable answer came and ``ApiError`` if the API server
    refused; ``api_errors`` has the narrower ones. A call is retried with backoff until ``timeout``:
    always if it cannot have been executed, that is, if the connection was refused or the response
    has ``Retry-After`` (429, 503); after a lost connection and other errors from 500 on only if
    it is idempotent.
    """

    def __init__(
        self,
        server: Server,
        *,
        user_agent: str,
        field_manager: str,
        limit: RateLimit | None = None,
        timeout: timedelta = TIMEOUT,
    ) -> None:
        """Create the client; no request is sent yet.

        Args:
            server: API server and credentials.
            user_agent: user agent of the requests, shown in the audit log.
            field_manager: field manager of the objects that the client writes.
            limit: rate limit of this process; None for no limit.
            timeout: timeout of one call, retries included, waiting for ``limit`` excluded.

        """
        self._server = server
        self._connections = Connections(server)
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",  # the API server compresses responses from 128 KiB on
            "User-Agent": user_agent,
        }
        self._manager = {"fieldManager": field_manager}
        self._limit = limit
        self._timeout_s = timeout.total_seconds()

    def get(self, path: str, params: Params | None = None) -> Json:
        """Read an object."""
        return self._call(_Request(verb="GET", path=path, params=params or {}))

    def create(self, path: str, body: Json, *, repeatable: bool = False) -> Json:
        """Create an object; ``path`` is that of its collection or of an eviction.

        Args:
            path: API path of the request.
            body: the object.
            repeatable: the caller takes ``AlreadyExists`` for success, so the call may be tried
                again when it is not known whether the first was carried out.

        """
        return self._write("POST", path, body, repeatable=repeatable)

    def replace(self, path: str, body: Json) -> Json:
        """Replace an object; raises ``Conflict`` if it has changed since it was read."""
        return self._write("PUT", path, body)

    def patch(self, path: str, body: _Body, kind: Patch = Patch.MERGE) -> Json:
        """Patch an object."""
        forced = {"force": "true"} if kind is Patch.APPLY else {}
        repeatable = kind is not Patch.JSON  # a JSON patch "add" to an array is not idempotent
        return self._write("PATCH", path, body, kind, forced, repeatable=repeatable)

    def delete(
        self, path: str, *, uid: str = "", grace: int | None = None, propagation: str = ""
    ) -> None:
        """Delete an object.

        Args:
            path: API path of the object.
            uid: precondition; an object of the same name with another UID raises ``Conflict``.
            grace: grace period of a pod in seconds, 0 for none; None for the pod's own.
            propagation: ``Foreground``, ``Background`` or ``Orphan``, for its dependents.

        """
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if propagation:
            options["propagationPolicy"] = propagation
        self._call(_Request(verb="DELETE", path=path, params={}, body=_encode(options)))

    def pages(self, path: str, params: Params | None = None) -> Iterator[ListPage]:
        """Yield the objects of a collection at one resource version, ``PAGE`` per page.

        Raises:
            Gone: the continue token expired (after five minutes).

        """
        query = {"limit": PAGE, **(params or {})}
        while True:
            content = self._call(_Request(verb="GET", path=path, params=query))
            about = content.get("metadata") or {}
            yield ListPage(
                items=content.get("items") or [],
                resource_version=str(about.get("resourceVersion") or ""),
            )
            if not about.get("continue"):
                return
            query["continue"] = about["continue"]

    def list(self, path: str, params: Params | None = None) -> Iterator[Json]:
        """Yield the objects of a collection one by one; see ``pages``."""
        for page in self.pages(path, params):
            yield from page.items

    def watch(
        self, path: str, params: Params | None = None, *, stall: timedelta = timedelta(minutes=2)
    ) -> Watch:
        """Open a watch, without retries.

        Args:
            path: API path of the collection.
            params: query such as ``resourceVersion``.
            stall: read timeout; request bookmarks, which the API server sends every minute.

        """
        return Watch(*self.opened(path, {**(params or {}), "watch": "true"}, stall))

    def opened(
        self,
        path: str,
        params: Params,
        stall: timedelta,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[str, socket.socket, http.client.HTTPResponse]:
        """Open a streaming response, for ``ResponseStream`` and the like, without retries.

        Args:
            path: API path of the request.
            params: its query.
            stall: read timeout.
            status: expected HTTP status; any other is an error.
            headers: headers in addition to those of all calls.

        Returns:
            Name of the call, the socket and the response.

        """
        request = _Request(verb="GET", path=path, params=params)
        sent = {**self._headers_of(request), **(headers or {})}
        self._wait_for_limit()
        connection = self._connections.open(self._timeout_s)
        opened = connection.sock  # the connection drops its socket if the server is about to close
        try:
            self._send(connection, request, sent)
            response = connection.getresponse()
            if response.status != status:
                body = _read(opened, response, time.monotonic() + self._timeout_s)
                raise _refusal(request, response, body)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"{request}: {self._no_answer(error)}") from error
        except ApiError:
            connection.close()
            raise
        opened.settimeout(stall.total_seconds())
        return str(request), opened, response

    def close(self) -> None:
        """Close idle connections; the next call opens a new one."""
        self._connections.clear()

    def _write(
        self,
        verb: str,
        path: str,
        body: _Body,
        media_type: str = "application/json",
        params: Params | None = None,
        *,
        repeatable: bool = True,
    ) -> Json:
        return self._call(
            _Request(
                verb=verb,
                path=path,
                params={**self._manager, **(params or {})},
                body=_encode(body),
                media_type=media_type,
                repeatable=repeatable,
            )
        )

    def _call(self, request: _Request) -> Json:
        deadline = time.monotonic() + self._timeout_s
        failures = 0
        refused = self._server.token_refused
        while True:
            deadline += self._wait_for_limit()
            try:
                return self._attempt(request, deadline)
            except Unauthorized:
                if refused is None:
                    raise
                refused()
                refused = None
                self._connections.clear()  # these connections were opened with the old certificate
                continue
            except (Unreachable, ApiError) as error:
                failures += 1
                wait_s = _wait(error, request, failures)
                if wait_s is None or time.monotonic() + wait_s >= deadline:
                    raise
            time.sleep(wait_s)

    def _attempt(self, request: _Request, deadline: float) -> Json:
        headers = self._headers_of(request)
        connection = self._connections.take(max(deadline - time.monotonic(), _SHORTEST_S))
        opened = connection.sock
        try:
            opened.settimeout(max(deadline - time.monotonic(), _SHORTEST_S))
            self._send(connection, request, headers)
            response = connection.getresponse()
            body = _read(opened, response, deadline)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._connections.clear()
            raise Unreachable(f"{request}: {self._no_answer(error)}") from error
        self._connections.release(connection)
        if not 200 <= response.status < 300:
            raise _refusal(request, response, body)
        return _decode(request, response, body)

    def _headers_of(self, request: _Request) -> dict[str, str]:
        headers = dict(self._headers)
        token = self._server.token() if self._server.token is not None else ""
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if request.body is not None:
            headers["Content-Type"] = request.media_type
        return headers

    def _send(
        self, connection: http.client.HTTPConnection, request: _Request, headers: dict[str, str]
    ) -> None:
        target = self._connections.prefix + quote(request.path)
        if request.params:
            target += "?" + urlencode(request.params, doseq=True)
        connection.request(request.verb, target, body=request.body, headers=headers)

    def _no_answer(self, error: Exception) -> str:
        if isinstance(error, TimeoutError) and error.errno is None:  # not the timeout of TCP
            return f"{self._server.url} did not respond within {self._timeout_s:g} s"
        return f"the connection to {self._server.url} broke: {error!r}"

    def _wait_for_limit(self) -> float:
        return self._limit.acquire().total_seconds() if self._limit is not None else 0.0


def _wait(error: Unreachable | ApiError, request: _Request, failures: int) -> float | None:
    """Seconds until the next retry; None for no retry."""
    jittered_s = _BACKOFF.delay(failures, JITTER.random()).total_seconds()
    if isinstance(error, Unreachable):
        if error.permanent or (error.sent and not request.repeatable):
            return None
        return jittered_s
    if error.after is not None and error.status in (429, 503):
        if isinstance(error, Throttled) and error.is_disruption_budget:
            return None
        return error.after.total_seconds() + jittered_s
    return jittered_s if error.is_transient and request.repeatable else None


def _read(opened: socket.socket, response: http.client.HTTPResponse, deadline: float) -> bytes:
    pieces = []
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the response is too slow")
        if not response.isclosed():  # since Python 3.11.8, the last piece may close the socket
            opened.settimeout(left_s)
    response.close()
    return _unpacked(response, b"".join(pieces))


def _unpacked(response: http.client.HTTPResponse, body: bytes) -> bytes:
    if response.headers.get("Content-Encoding") != "gzip":
        return body
    try:
        return zlib.decompress(body, _GZIP)
    except zlib.error as error:
        raise http.client.IncompleteRead(b"") from error


def _encode(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _decode(request: _Request, response: http.client.HTTPResponse, body: bytes) -> Json:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        if "json" in response.headers.get("Content-Type", "json"):  # or headers were lost
            raise Unreachable(f"{request}: the response was cut off: {error}") from error
        content = None
    if not isinstance(content, dict):
        raise ApiError(
            f"{request}: the response is not a JSON object; check the address of the API",
            status=response.status,
            reason="",
            message="",
            after=None,
        )
    return content


def _refusal(request: _Request, response: http.client.HTTPResponse, body: bytes) -> ApiError:
    return api_error(str(request), response.status, body, response.headers.get("Retry-After"))
