"""The web console: pages, data and requests. It records requests and never acts on nodes."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import resources
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from holdfast.api.console_live import Live
from holdfast.api.console_sessions import (
    LIFETIME,
    ConsoleSession,
    Sessions,
    TooManyTries,
    WrongToken,
)
from holdfast.api.console_source import (
    ConsoleAction,
    ConsoleBackend,
    Json,
    NotAccepted,
    RepairRequest,
    UnknownObject,
)
from holdfast.api.identity import Role
from holdfast.api.problems import BODY_TIMEOUT_S
from holdfast.kit.serial import from_plain
from holdfast.model.errors import HoldfastError

COOKIE: Final = "holdfast_session"
PROOF: Final = "x-holdfast-proof"
"""Header of requests that change something: ``ConsoleSession.proof``."""

_BODY_LIMIT: Final = 10_000
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}

_STATUS: Final = {WrongToken: 401, UnknownObject: 404, NotAccepted: 409, TooManyTries: 429}
"""HTTP status by error of a refused request; any other error is a backend failure."""

_View = Callable[[Request, ConsoleSession], Awaitable[Response]]


class _Refused(HoldfastError):
    """The request is refused; the text is returned to the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Console:
    """Serves the console."""

    def __init__(self, source: ConsoleBackend, sessions: Sessions, live: Live) -> None:
        self._source = source
        self._sessions = sessions
        self._live = live

    def routes(self) -> list[Route]:
        """URL patterns; ``/`` only for methods other than POST."""
        files = {one.name: _file(one.name, one.read_bytes()) for one in _static().iterdir()}
        return [
            Route("/", partial(_served, files["index.html"])),
            Route("/console/static/{name}", partial(_one_of, files)),
            Route("/console/session", _answering(self._begin), methods=["POST"]),
            Route("/console/session", self._for_all(self._who), methods=["GET"]),
            Route("/console/session", self._for_all(self._end), methods=["DELETE"]),
            Route("/console/live", self._for_all(self._stream)),
            Route("/console/node", self._for_all(self._node)),
            Route("/console/job", self._for_all(self._job)),
            Route("/console/goodput", self._for_all(self._goodput)),
            Route("/console/repairs", self._for_all(self._ask), methods=["POST"]),
        ]

    def _for_all(self, view: _View) -> Callable[[Request], Awaitable[Response]]:
        """View that requires a login."""

        async def answer(request: Request) -> Response:
            session = self._sessions.find(request.cookies.get(COOKIE, ""))
            if session is None:
                raise _Refused(401, "log in first")
            if request.method not in ("GET", "HEAD"):
                self._prove(request, session)
            return await view(request, session)

        return _answering(answer)

    def _prove(self, request: Request, session: ConsoleSession) -> None:
        """Verify that a page of this console made the request (CSRF protection)."""
        _same_origin(request)
        if not self._sessions.proves(session, request.headers.get(PROOF, "")):
            raise _Refused(403, "the page is outdated; reload it")

    async def _begin(self, request: Request) -> Response:
        _same_origin(request)
        token = (await _body(request)).get("token")
        if not isinstance(token, str):
            raise _Refused(400, "token: expected a string")
        if not self._sessions.are_possible:
            raise _Refused(403, "no key in api.toml has a token; add token = ... to a key")
        cookie = self._sessions.begin(token, request.client.host if request.client else "")
        session = self._sessions.find(cookie)
        answer = _json(_session_json(session) if session else {})
        answer.set_cookie(
            COOKIE,
            cookie,
            max_age=int(LIFETIME.total_seconds()),
            path="/console",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _who(self, _request: Request, session: ConsoleSession) -> Response:
        return _json(_session_json(session))

    async def _end(self, request: Request, _session: ConsoleSession) -> Response:
        self._sessions.end(request.cookies[COOKIE])
        answer = Response(status_code=204, headers=_HEADERS)
        answer.delete_cookie(COOKIE, path="/console", httponly=True, samesite="strict")
        return answer

    async def _stream(self, request: Request, _session: ConsoleSession) -> Response:
        cookie = request.cookies[COOKIE]
        events = self._live.stream(
            request.headers.get("last-event-id", ""),
            lambda: self._sessions.find(cookie) is not None,
        )
        headers = {**_HEADERS, "x-accel-buffering": "no"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def _node(self, request: Request, _session: ConsoleSession) -> Response:
        query = request.query_params
        fleet, name = query.get("fleet", ""), query.get("name", "")
        return _json(await run_in_threadpool(self._source.node, fleet, name))

    async def _job(self, request: Request, _session: ConsoleSession) -> Response:
        name = request.query_params.get("name", "")
        return _json(await run_in_threadpool(self._source.job, name))

    async def _goodput(self, _request: Request, _session: ConsoleSession) -> Response:
        return _json(await run_in_threadpool(self._source.goodput))

    async def _ask(self, request: Request, session: ConsoleSession) -> Response:
        if session.key.role is not Role.OPERATE:
            raise _Refused(
                403,
                f"{session.key.person} is not authorized to change nodes: the key "
                f"has the role {session.key.role}",
            )
        repair = _repair_request(await _body(request))
        message = await run_in_threadpool(self._source.submit, repair, session.key.person)
        return _json({"message": message}, status=202)


def _answering(
    view: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """View that returns errors as JSON."""

    async def answer(request: Request) -> Response:
        try:
            return await view(request)
        except _Refused as refused:
            return _problem(refused.status, str(refused))
        except HoldfastError as error:
            return _problem(_STATUS.get(type(error), 503), str(error))

    return answer


def _session_json(session: ConsoleSession) -> Json:
    return {
        "person": session.key.person,
        "role": session.key.role,
        "proof": session.proof,
        "expires_at": session.expires_at.isoformat(),
    }


def _same_origin(request: Request) -> None:
    """Verify the Origin header, which browsers send with every request that may change state."""
    origin = request.headers.get("origin", "")
    try:
        host = urlsplit(origin).netloc
    except ValueError:
        host = ""
    if not host or host != request.headers.get("host"):
        raise _Refused(403, f"the request comes from {origin or 'nowhere'}, not from this console")


async def _body(request: Request) -> dict[str, Any]:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _BODY_LIMIT:
                    raise _Refused(413, f"the request exceeds the limit of {_BODY_LIMIT} bytes")
    except (TimeoutError, ClientDisconnect):
        raise _Refused(
            408, f"the request was not received within {BODY_TIMEOUT_S:.0f} seconds"
        ) from None
    try:
        content = json.loads(body)
        json.dumps(content, ensure_ascii=False).encode()  # rejects lone surrogates
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise _Refused(400, "the request body is not a JSON object")
    return content


def _repair_request(content: dict[str, Any]) -> RepairRequest:
    try:
        repair = from_plain(RepairRequest, content)
    except ValueError:
        raise _Refused(
            400, f"expected act (one of {', '.join(ConsoleAction)}), fleet, node, why, when_idle"
        ) from None
    if not repair.node and repair.act is not ConsoleAction.RESET_BREAKER:
        raise _Refused(400, "node: expected the name of a node")
    return repair


def _json(content: Json, status: int = 200) -> JSONResponse:
    return JSONResponse(content, status_code=status, headers=_HEADERS)


def _problem(status: int, message: str) -> JSONResponse:
    headers = {"retry-after": "60"} if status == 429 else {}
    return JSONResponse({"message": message}, status_code=status, headers={**_HEADERS, **headers})


def _static() -> resources.abc.Traversable:
    return resources.files("holdfast.api") / "static"


def _file(name: str, content: bytes) -> tuple[bytes, Mapping[str, str]]:
    """Static file: content and headers."""
    return (
        content,
        {
            **_HEADERS,
            "content-type": _TYPES[name[name.rindex(".") :]],
            "cache-control": "no-cache",  # revalidated, sent only if changed
            "etag": f'"{hashlib.sha256(content).hexdigest()[:20]}"',
        },
    )


async def _served(file: tuple[bytes, Mapping[str, str]], request: Request) -> Response:
    content, headers = file
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)


async def _one_of(
    files: Mapping[str, tuple[bytes, Mapping[str, str]]], request: Request
) -> Response:
    file = files.get(request.path_params["name"])
    return _problem(404, "file not found") if file is None else await _served(file, request)
