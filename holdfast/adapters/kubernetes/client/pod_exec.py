"""Non-interactive commands in containers, with captured output."""

import http.client
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Unreachable
from holdfast.adapters.kubernetes.client.websocket import Channel, Messages, opened

_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class PodOutput:
    """Output of a command, and the error if it failed."""

    text: str
    error: str
    """Error including standard error; empty if the command exited with code 0."""


def run_in_pod(
    api: Api, pod: str, container: str, command: Sequence[str], *, within: timedelta, limit: int
) -> PodOutput:
    """Run a command in a container and wait until it exits.

    Args:
        api: the client.
        pod: address of the pod.
        container: its container.
        command: what is run.
        within: for so long, once it runs.
        limit: bytes that are kept of its output, and of its errors.

    Raises:
        BackendError: it could not be started.

    """
    query = {"container": container, "command": command, "stdout": "true", "stderr": "true"}
    call, connection, response = opened(api, pod, query, within)
    deadline = time.monotonic() + within.total_seconds()
    received = {Channel.OUTPUT: bytearray(), Channel.ERRORS: bytearray()}
    error: str | None = None
    messages = Messages()
    try:
        while error is None and (left_s := deadline - time.monotonic()) > 0:
            connection.settimeout(left_s)
            piece = response.fp.read1(_PIECE)
            if not piece:
                raise http.client.IncompleteRead(b"")
            for channel, content in messages.feed(piece):
                if channel == Channel.STATUS:
                    error = failure(content)
                elif channel in received:
                    buffer = received[Channel(channel)]
                    buffer += content[: limit - len(buffer)]
    except TimeoutError:
        pass
    except (OSError, http.client.HTTPException) as broken:
        error = str(Unreachable(f"{call}: {broken!r}"))
    finally:
        response.close()
        connection.close()
    if error is None:
        error = f"the command did not end within {within.total_seconds():g} s"
    text, errors = (one.decode(errors="replace") for one in received.values())
    return PodOutput(text, f"{error}: {errors.strip()}".rstrip(": ") if error else "")


def failure(status: bytes) -> str:
    """Return the error of a command from its final ``Status``; empty if it succeeded."""
    try:
        parsed = json.loads(status)
    except ValueError:
        return "the API server did not report how the command ended"
    if not isinstance(parsed, dict):
        return str(parsed)
    return "" if parsed.get("status") == "Success" else str(parsed.get("message") or parsed)
