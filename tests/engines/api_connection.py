"""Raw requests to a Kubernetes API server, for what client libraries hide."""

import json
import ssl
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPSConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from holdfast.model.errors import BackendError

_TIMEOUT_S: Final = 30
_READS: Final = 10
_READ_AGAIN_S: Final = 1.0


class Refused(BackendError):
    """The API server answered with an error; ``status`` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server answered {status}: {message}")
        self.status = status


class ApiConnection:
    """One connection of one user; a context manager.

    Args:
        host: of the API server.
        port: of the API server.
        certificate: the file with the certificate by which it is known.
        token: of the user.

    """

    def __init__(self, host: str, port: int, *, certificate: Path, token: str) -> None:
        context = ssl.create_default_context(cafile=certificate)
        self._connection = HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)
        self._token = token

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def request(self, method: str, path: str, body: Any = None, *, accept: str = "") -> Any:
        """One request; returns the JSON of the answer, or its text where it is no object.

        A read is repeated while the API server asks for that, as it does while its caches fill.

        Args:
            method: of HTTP; the body of ``PATCH`` is a JSON merge patch.
            path: with the query, if any.
            body: sent as JSON.
            accept: another representation than plain JSON.

        Raises:
            Refused: the API server answered with an error.
            OSError: it could not be reached.
            HTTPException: the connection broke during the answer.

        """
        headers = {"Authorization": f"Bearer {self._token}", **_types(method, accept)}
        text = None if body is None else json.dumps(body)
        for tries in range(_READS if method == "GET" else 1):
            time.sleep(_READ_AGAIN_S if tries else 0)
            self._connection.request(method, path, text, headers)
            response = self._connection.getresponse()
            content = response.read().decode("utf-8")
            if response.status != HTTPStatus.TOO_MANY_REQUESTS:
                break
        if response.status >= 400:
            raise Refused(response.status, content)
        return json.loads(content) if content.startswith("{") else content


def _types(method: str, accept: str) -> Mapping[str, str]:
    sent = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return {"Content-Type": sent, "Accept": accept or "application/json"}
