"""Requests and responses of the console: bodies, origins and errors."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from holdfast.api.console_files import HEADERS
from holdfast.api.console_sessions import TooManyTries, WrongToken
from holdfast.api.console_source import Json, NotAccepted, UnknownObject
from holdfast.api.problems import BODY_TIMEOUT_S, AccessDenied, ApiProblem, ResourceNotFound
from holdfast.model.errors import HoldfastError

_BODY_LIMIT: Final = 10_000

_STATUS: Final = {
    WrongToken: 401,
    AccessDenied: 403,
    UnknownObject: 404,
    ResourceNotFound: 404,
    NotAccepted: 409,
    TooManyTries: 429,
}
"""HTTP status by error of a refused request; others are backend failures, except ``ApiProblem``."""


class Refused(HoldfastError):
    """The request is refused; the text is returned to the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def answering(
    view: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """View that returns errors as JSON."""

    async def answer(request: Request) -> Response:
        try:
            return await view(request)
        except Refused as refused:
            return _problem(refused.status, str(refused))
        except HoldfastError as error:
            other = error.status if isinstance(error, ApiProblem) else 503
            return _problem(_STATUS.get(type(error), other), str(error))

    return answer


def require_same_origin(request: Request) -> None:
    """Verify the Origin header, which browsers send with every request that may change state."""
    origin = request.headers.get("origin", "")
    try:
        host = urlsplit(origin).netloc
    except ValueError:
        host = ""
    if not host or host != request.headers.get("host"):
        raise Refused(403, f"the request comes from {origin or 'nowhere'}, not from this console")


async def read_body(request: Request, limit: int = _BODY_LIMIT) -> dict[str, Any]:
    """JSON object in the body of a request, at most ``limit`` bytes.

    Raises:
        Refused: it is too long, too slow or no JSON object.

    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise Refused(413, f"the request exceeds the limit of {limit} bytes")
    except (TimeoutError, ClientDisconnect):
        raise Refused(
            408, f"the request was not received within {BODY_TIMEOUT_S:.0f} seconds"
        ) from None
    try:
        content = json.loads(body)
        json.dumps(content, ensure_ascii=False).encode()  # rejects lone surrogates
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Refused(400, "the request body is not a JSON object")
    return content


def json_response(content: Json, status: int = 200) -> JSONResponse:
    """Response with the headers of the console."""
    return JSONResponse(content, status_code=status, headers=HEADERS)


def _problem(status: int, message: str) -> JSONResponse:
    headers = {"retry-after": "60"} if status == 429 else {}
    return JSONResponse({"message": message}, status_code=status, headers={**HEADERS, **headers})
