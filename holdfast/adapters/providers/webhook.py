"""A webhook: posts each order, signed, to a receiver of the site's own.

The receiver takes an order and does not wait until it is done. It answers

- 2xx, or 409 for an order that it had taken before: accepted;
- 410: the machine does not exist any more;
- 429 or 503: later, after ``Retry-After``;
- anything else: refused, with the reason in the body.
"""

import hashlib
import hmac
import http.client
import json
import os
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import quote, urlsplit

from holdfast.adapters.providers.orders import OwnerAway
from holdfast.adapters.providers.settings import ProviderConfig, WebhookSettings
from holdfast.model.errors import ConfigError, NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import NodeView

_PAUSE: Final = timedelta(seconds=30)
"""Where the receiver names none."""

_LONGEST_PAUSE: Final = timedelta(hours=1)
"""Whatever ``Retry-After`` says: a repair is not to be put off for ever."""

_EXCERPT: Final = 300  # bytes of a refusal's body


class Webhook:
    """A receiver of orders."""

    def __init__(self, settings: WebhookSettings) -> None:
        """Speak to the receiver.

        Raises:
            ConfigError: there is no secret, or the certificates cannot be read.

        """
        self._settings = settings
        self._url = urlsplit(settings.url)
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None
        try:
            if settings.ca_file is not None:
                self._tls = ssl.create_default_context(cafile=str(settings.ca_file))
        except OSError as error:
            raise ConfigError(f"provider.webhook.ca_file: {settings.ca_file}: {error}") from error
        try:
            self._secret()
        except ProviderError as error:
            raise ConfigError(f"provider.webhook: {error}") from error

    def reboot(self, node: NodeView, token: str) -> None:
        """Post an order with ``"action": "reboot"``."""
        self._order("reboot", node, token)

    def replace(self, node: NodeView, token: str) -> None:
        """Post an order with ``"action": "replace"``."""
        self._order("replace", node, token)

    def _order(self, action: str, node: NodeView, token: str) -> None:
        body = json.dumps(order_of(action, node, token)).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "holdfast",
            "Idempotency-Key": quote(token),
            "Holdfast-Signature": signature(self._secret(), datetime.now(UTC), body),
        }
        status, answer, retry_after = self._post(body, headers)
        told = f"{self._url.hostname} answered {status} to the order to {action} {node.name}"
        told += f": {answer}" if answer else ""
        match status:
            case 409:
                return
            case 410:
                raise NodeGone(told)
            case 429 | 503:
                raise RetryLater(told, after=pause_of(retry_after, datetime.now(UTC)))
            case _ if 300 <= status < 400:
                raise ProviderError(f"{told}; redirects are refused: set provider.webhook.url")
            case _ if not 200 <= status < 300:
                raise ProviderError(told)

    def _post(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str, str]:
        timeout = self._settings.timeout.total_seconds()
        host, port = self._url.hostname or "", self._url.port
        connection = (
            http.client.HTTPConnection(host, port, timeout=timeout)
            if self._tls is None
            else http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        )
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        try:
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            excerpt = answer.read(_EXCERPT).decode("utf-8", errors="replace").strip()
            return answer.status, excerpt, answer.getheader("Retry-After", "")
        except ssl.SSLCertVerificationError as error:
            raise ProviderError(
                f"{host} has no certificate to be trusted: {error.verify_message}; see"
                " provider.webhook.ca_file"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise OwnerAway(f"{host} does not answer: {why}", after=_PAUSE) from error
        finally:
            connection.close()

    def _secret(self) -> bytes:
        file, variable = self._settings.secret_file, self._settings.secret_env
        try:
            secret = os.environ.get(variable, "").encode() if file is None else file.read_bytes()
        except OSError as error:
            raise ProviderError(f"the secret cannot be read: {error}") from error
        if not secret.strip():
            raise ProviderError(f"the secret is empty: put one into {file or '$' + variable}")
        return secret.strip()


def order_of(action: str, node: NodeView, token: str) -> dict[str, str]:
    """What is posted."""
    course = node.record.course
    return {
        "action": action,
        "node": node.name,
        "provider_id": node.provider_id,
        "boot_id": node.boot_id,
        "token": token,
        "incident": course.incident_id if course is not None else "",
        "reason": course.reason if course is not None else "",
    }


def signature(secret: bytes, at: datetime, body: bytes) -> str:
    """The header: seconds since 1970 as ``t``, and as ``v1`` the HMAC-SHA256 of ``t.body``."""
    seconds = str(int(at.timestamp()))
    digest = hmac.new(secret, seconds.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


def pause_of(retry_after: str, now: datetime) -> timedelta:
    """What ``Retry-After`` asks for, in seconds or as a date; at most an hour."""
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return timedelta(seconds=min(float(text), _LONGEST_PAUSE.total_seconds()))
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return _PAUSE
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return min(max(at - now, timedelta(0)), _LONGEST_PAUSE)


def build(config: ProviderConfig) -> Webhook:
    """The provider of the table's row."""
    if config.webhook is None:
        raise ConfigError("provider.webhook: missing, expected a table with url")
    return Webhook(config.webhook)
