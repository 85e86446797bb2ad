"""Webhook: posts each order, signed, to a site-specific receiver.

The receiver accepts an order without waiting for its completion. Responses:

- 2xx, or 409 for an order that it accepted before: accepted;
- 410: the machine no longer exists;
- 429 or 503: retried after ``Retry-After``;
- 500, 502, 504, or nothing in time: perhaps carried out, perhaps not. The order is repeated with
  the same token, and a machine that appears meanwhile is taken for its result;
- anything else: refused, with the reason in the body.
"""

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

from holdfast.adapters.providers.orders import OwnerUnreachable
from holdfast.adapters.providers.settings import ProviderConfig, WebhookSettings
from holdfast.kit.webhooks import (
    NoResponse,
    NotReached,
    NotTrusted,
    WebhookClient,
    WebhookResponse,
    pause_of,
    signature,
)
from holdfast.model.errors import ConfigError, NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import NodeView

_UNCERTAIN: Final = (500, 502, 504)
"""Statuses of a receiver that failed at some point, or of a gateway in front of it."""

_PAUSE: Final = timedelta(seconds=30)
"""Default delay if the receiver sends no ``Retry-After``."""


class Webhook:
    """Provider that posts orders to a receiver."""

    def __init__(self, settings: WebhookSettings) -> None:
        """Create the client of the receiver.

        Raises:
            ConfigError: the secret is missing, or the certificates cannot be read.

        """
        self._settings = settings
        try:
            self._receiver = WebhookClient(settings.url, settings.timeout, settings.ca_file)
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
        answer = self._post(body, headers)
        reported = (
            f"{self._receiver.host} returned HTTP status {answer.status} for the order to {action}"
        )
        reported += f" {node.name}" + (f": {answer.text}" if answer.text else "")
        match answer.status:
            case 409:
                return
            case 410:
                raise NodeGone(reported)
            case 429 | 503:
                raise RetryLater(
                    reported, after=pause_of(answer.retry_after, datetime.now(UTC), _PAUSE)
                )
            case status if status in _UNCERTAIN:
                raise RetryLater(reported, after=_PAUSE, is_outcome_unknown=True)
            case status if 300 <= status < 400:
                raise ProviderError(f"{reported}; redirects are refused: set provider.webhook.url")
            case status if not 200 <= status < 300:
                raise ProviderError(reported)

    def _post(self, body: bytes, headers: dict[str, str]) -> WebhookResponse:
        try:
            return self._receiver.post(body, headers)
        except NotTrusted as error:
            raise ProviderError(
                f"{self._receiver.host} has an untrusted certificate: {error}; see"
                " provider.webhook.ca_file"
            ) from error
        except NoResponse as error:
            raise OwnerUnreachable(
                f"{self._receiver.host} does not respond: {error}",
                after=_PAUSE,
                is_outcome_unknown=not isinstance(error, NotReached),
            ) from error

    def _secret(self) -> bytes:
        file, variable = self._settings.secret_file, self._settings.secret_env
        try:
            secret = os.environ.get(variable, "").encode() if file is None else file.read_bytes()
        except OSError as error:
            raise ProviderError(f"the secret cannot be read: {error}") from error
        if not secret.strip():
            raise ProviderError(f"the secret is empty: put one into {file or '$' + variable}")
        return secret.strip()


def order_of(action: str, node: NodeView, token: str) -> dict[str, str | list[str]]:
    """Body of the request."""
    remediation = node.record.remediation
    return {
        "action": action,
        "node": node.name,
        "provider_id": node.provider_id,
        "addresses": list(node.addresses),
        "boot_id": node.boot_id,
        "token": token,
        "incident": remediation.incident_id if remediation is not None else "",
        "reason": remediation.reason if remediation is not None else "",
    }


def build(config: ProviderConfig) -> Webhook:
    """Build the provider."""
    if config.webhook is None:
        raise ConfigError("provider.webhook: missing, expected a table with url")
    return Webhook(config.webhook)
