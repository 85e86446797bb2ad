"""The HTTP server of the API."""

from collections.abc import Callable, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from holdfast.api.problems import InternalFailure
from holdfast.api.protocol import refusal

_BUG: Final = "Internal error; see the log of the server"


def application(
    services: Sequence[Route], failed: Callable[[Exception], None], console: Sequence[Route] = ()
) -> Starlette:
    """ASGI application of the server.

    Args:
        services: routes of the AWS services.
        failed: called with the error of a bug.
        console: further routes to serve.

    """

    async def health(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def bug(_request: Request, error: Exception) -> Response:
        failed(error)
        answer = refusal(InternalFailure(_BUG))
        return Response(answer.body, status_code=answer.status, headers=dict(answer.headers))

    return Starlette(
        routes=[*services, Route("/healthz", health), *console],
        exception_handlers={Exception: bug},
    )
