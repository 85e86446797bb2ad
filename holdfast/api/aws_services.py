"""AWS services that the server provides, and their routes."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.api.kubernetes_tokens import REVIEW_LIMIT, TokenReviews
from holdfast.api.operation_calls import OperationCalls
from holdfast.api.problems import BODY_LIMIT, BODY_TIMEOUT_S, ApiProblem, TooLarge, TooSlow
from holdfast.api.protocol import ApiResponse, refusal
from holdfast.api.signature import SignedRequest, claimed_service
from holdfast.api.sts import SIGNING_NAME

REVIEW_PATH: Final = "/kubernetes/token-review"


class AwsApi(Protocol):
    """An AWS service."""

    def answer(self, request: SignedRequest) -> ApiResponse:
        """Handle a request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsServices:
    """Services of a server. STS and SageMaker share the path ``/``, as all services of AWS do."""

    sagemaker: AwsApi
    operations: OperationCalls
    """Operations of the SageMaker service, for the console."""

    sts: AwsApi
    eks: AwsApi
    tokens: TokenReviews | None = None
    """Reviews of tokens; None without a Kubernetes cluster."""

    def routes(self) -> list[Route]:
        """URL patterns of all services."""
        reviews = []
        if self.tokens is not None:
            review = partial(_reviewed, self.tokens)
            reviews = [Route(REVIEW_PATH, review, methods=["POST"])]
        return [
            Route("/", self._root, methods=["POST"]),
            Route("/clusters", self._eks, methods=["GET", "POST"]),
            Route("/clusters/{rest:path}", self._eks, methods=["GET", "POST", "DELETE"]),
            *reviews,
        ]

    async def _root(self, request: Request) -> Response:
        is_sts = claimed_service(request.headers) == SIGNING_NAME
        return await _answered(self.sts if is_sts else self.sagemaker, request)

    async def _eks(self, request: Request) -> Response:
        return await _answered(self.eks, request)


async def _reviewed(tokens: TokenReviews, request: Request) -> Response:
    try:
        body = await _body_of(request)
        if len(body) > REVIEW_LIMIT:
            raise TooLarge(f"The TokenReview has {len(body)} bytes; the limit is {REVIEW_LIMIT}")
        return JSONResponse(tokens.review(body))
    except ApiProblem as problem:
        return _response(refusal(problem))
    except ClientDisconnect:
        return Response()  # the client is gone


async def _answered(service: AwsApi, request: Request) -> Response:
    try:
        signed = SignedRequest(
            headers={name.lower(): value for name, value in request.headers.items()},
            body=await _body_of(request),
            query=request.url.query,
            address=request.client.host if request.client else "",
            method=request.method,
            path=request.scope.get("raw_path", b"/").decode("latin-1"),
        )
    except ApiProblem as problem:
        response = _response(refusal(problem))
        response.headers["connection"] = "close"
        return response
    except ClientDisconnect:
        return Response()  # the client is gone
    return _response(await run_in_threadpool(service.answer, signed))


def _response(answer: ApiResponse) -> Response:
    return Response(answer.body, status_code=answer.status, headers=dict(answer.headers))


async def _body_of(request: Request) -> bytes:
    """Body of a request of the API.

    Raises:
        TooSlow: it was not received within the timeout.
        TooLarge: it exceeds the limit.

    """
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
