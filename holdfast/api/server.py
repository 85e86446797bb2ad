"""The HTTP server of the API."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from holdfast.api.problems import (
    BODY_LIMIT,
    BODY_TIMEOUT_S,
    ApiProblem,
    InternalFailure,
    TooLarge,
    TooSlow,
)
from holdfast.api.protocol import ApiResponse, Protocol, refusal
from holdfast.api.signature import SignedRequest

_BUG: Final = "Internal error; see the log of the server"


def application(
    protocol: Protocol, failed: Callable[[Exception], None], console: Sequence[Route] = ()
) -> Starlette:
    """ASGI application of the server.

    Args:
        protocol: handles the calls of operations.
        failed: called with the error of a bug.
        console: further routes to serve.

    """

    async def operation(request: Request) -> Response:
        try:
            signed = SignedRequest(
                headers={name.lower(): value for name, value in request.headers.items()},
                body=await _body(request),
                query=request.url.query,
                address=request.client.host if request.client else "",
            )
        except ApiProblem as problem:
            response = _response(refusal(problem))
            response.headers["connection"] = "close"
            return response
        except ClientDisconnect:
            return Response()  # the client is gone
        return _response(await run_in_threadpool(protocol.answer, signed))

    async def health(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def bug(_request: Request, error: Exception) -> Response:
        failed(error)
        return _response(refusal(InternalFailure(_BUG)))

    return Starlette(
        routes=[Route("/", operation, methods=["POST"]), Route("/healthz", health), *console],
        exception_handlers={Exception: bug},
    )


async def _body(request: Request) -> bytes:
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= BODY_LIMIT:  # drain: a client reads only after sending
                    body += chunk
    except TimeoutError:
        raise TooSlow(f"The request was not received within {BODY_TIMEOUT_S:.0f} seconds") from None
    if size > BODY_LIMIT:
        raise TooLarge(f"The request has {size} bytes; the limit is {BODY_LIMIT}")
    return bytes(body)


def _response(answer: ApiResponse) -> Response:
    return Response(answer.body, status_code=answer.status, headers=dict(answer.headers))
