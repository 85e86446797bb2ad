"""Client for signed JSON webhooks."""

import hashlib
import hmac
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from holdfast.kit.units import one_line

LONGEST_PAUSE: Final = timedelta(hours=1)
"""Maximum delay, whatever ``Retry-After`` requests."""

_EXCERPT: Final = 300  # bytes of a response's body


class NotTrusted(OSError):
    """The certificate of the server is not trusted."""


class NoResponse(OSError):
    """The server did not respond in time, or its response is not HTTP."""


class NotReached(NoResponse):
    """No connection to the server: it has received nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookResponse:
    """Response of the server."""

    status: int
    text: str
    """Beginning of the body, as one line."""

    retry_after: str
    """Header of that name; empty if missing."""


class WebhookClient:
    """Client of one address. It does not follow redirects; they are returned like any response."""

    def __init__(self, url: str, timeout: timedelta, ca_file: Path | None = None) -> None:
        """Create the client.

        Args:
            url: address with ``https`` or ``http``.
            timeout: limit for the connection, and for request and response together.
            ca_file: PEM certificates to trust instead of the system's.

        Raises:
            OSError: ``ca_file`` cannot be read.

        """
        self._url: SplitResult = urlsplit(url)
        self._timeout_s = timeout.total_seconds()
        self._tls = None
        if self._url.scheme == "https":
            self._tls = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)

    @property
    def host(self) -> str:
        """Host name of the server, which may be shown to people; the rest may be secret."""
        return self._url.hostname or ""

    def post(self, body: bytes, headers: Mapping[str, str]) -> WebhookResponse:
        """Send a POST request.

        Raises:
            NotTrusted: the certificate is not trusted.
            NotReached: there is no connection.
            NoResponse: no response; the server may have acted anyway.

        """
        connection = (
            http.client.HTTPConnection(self.host, self._url.port, timeout=self._timeout_s)
            if self._tls is None
            else http.client.HTTPSConnection(
                self.host, self._url.port, timeout=self._timeout_s, context=self._tls
            )
        )
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        try:
            self._connect(connection)
            with _closed_after(self._timeout_s, connection.sock):
                connection.request("POST", path, body, dict(headers))
                with connection.getresponse() as answer:
                    return WebhookResponse(
                        status=answer.status,
                        text=one_line(
                            answer.read(_EXCERPT).decode("utf-8", errors="replace"), _EXCERPT
                        ),
                        retry_after=answer.getheader("Retry-After", ""),
                    )
        except (NotTrusted, NotReached):
            raise
        except (OSError, http.client.HTTPException) as error:
            raise NoResponse(one_line(str(error), _EXCERPT) or type(error).__name__) from error
        finally:
            connection.close()

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise NotTrusted(error.verify_message) from error
        except OSError as error:
            raise NotReached(str(error) or type(error).__name__) from error


@contextmanager
def _closed_after(timeout_s: float, connection: socket.socket) -> Iterator[None]:
    """Shut a connection down after a time: a server that sends slowly resets each timeout.

    Raises:
        TimeoutError: the time was over.

    """
    is_over = threading.Event()

    def close() -> None:
        is_over.set()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(timeout_s, close)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        if is_over.is_set():
            raise TimeoutError("timed out") from error
        raise
    finally:
        timer.cancel()


def signature(secret: bytes, at: datetime, body: bytes) -> str:
    """Return a header: seconds since 1970 as ``t``, HMAC-SHA256 of ``t.body`` as ``v1``."""
    seconds = str(int(at.timestamp()))
    digest = hmac.new(secret, seconds.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


def pause_of(retry_after: str, now: datetime, otherwise: timedelta) -> timedelta:
    """Return the delay in ``Retry-After``, in seconds or as a date; at most ``LONGEST_PAUSE``."""
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return timedelta(seconds=min(float(text), LONGEST_PAUSE.total_seconds()))
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return otherwise
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return min(max(at - now, timedelta(0)), LONGEST_PAUSE)
