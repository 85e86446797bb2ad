"""The HTTP server of the API."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from holdfast.api.problems import BODY_LIMIT, ApiProblem, InternalFailure, TooLarge, TooSlow
from holdfast.api.protocol import ApiResponse, Protocol, refusal
from holdfast.api.signature import SignedRequest

TIMEOUT_S: Final = 10.0
"""For the body of a request: its limit of bytes over a line of 1 Mbit/s."""

_BUG: Final = "Internal error; see the log of the server"


def application(
    protocol: Protocol, failed: Callable[[Exception], None], console: Sequence[Route] = ()
) -> Starlette:
    """The application to serve.

    Args:
        protocol: answers the calls of operations.
        failed: is told of bugs.
        console: what else is served.

    """

    async def operation(request: Request) -> Response:
        try:
            signed = SignedRequest(
                headers={name.lower(): value for name, value in request.headers.items()},
                body=await _body(request),
                query=request.url.query,
            )
        except ApiProblem as problem:
            response = _response(refusal(problem))
            response.headers["connection"] = "close"
            return response
        except ClientDisconnect:
            return Response()  # nobody reads it
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
        async with asyncio.timeout(TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= BODY_LIMIT:  # the rest is read and dropped: who sends does not listen
                    body += chunk
    except TimeoutError:
        raise TooSlow(f"The request was not received within {TIMEOUT_S:.0f} seconds") from None
    if size > BODY_LIMIT:
        raise TooLarge(f"The request has {size} bytes; the limit is {BODY_LIMIT}")
    return bytes(body)


def _response(answer: ApiResponse) -> Response:
    return Response(answer.body, status_code=answer.status, headers=dict(answer.headers))
