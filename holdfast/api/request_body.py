"""Bodies of requests, bounded in size and time."""

import asyncio

from starlette.requests import Request

from holdfast.api.problems import BODY_LIMIT, BODY_TIMEOUT_S, TooLarge, TooSlow


async def body_of(request: Request) -> bytes:
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
