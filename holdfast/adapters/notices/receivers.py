"""Receivers of notices: webhook, file and people."""

import json
import logging
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.adapters.notices.outbox import Refused, TryAgain
from holdfast.adapters.notices.settings import NoticeWebhook
from holdfast.kit.webhooks import NoResponse, NotTrusted, WebhookClient, pause_of, signature
from holdfast.model.errors import ConfigError


def webhook(settings: NoticeWebhook) -> Callable[[dict[str, Any]], None]:
    """Function that posts one event.

    Raises:
        ConfigError: the secret or the certificates cannot be read.

    """
    try:
        receiver = WebhookClient(settings.url, settings.timeout, settings.ca_file)
        secret = settings.secret_file.read_bytes().strip() if settings.secret_file else b""
    except OSError as error:
        raise ConfigError(f"notices.webhook: {error.filename}: {error.strerror}") from error
    if settings.secret_file and not secret:
        raise ConfigError(f"notices.webhook.secret_file: {settings.secret_file} is empty")

    def deliver(event: dict[str, Any]) -> None:
        body = json.dumps(event).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "holdfast",
            "Idempotency-Key": event["id"],
        }
        now = datetime.now(UTC)
        if secret:
            headers["Holdfast-Signature"] = signature(secret, now, body)
        try:
            answer = receiver.post(body, headers)
        except (NoResponse, NotTrusted) as error:
            raise TryAgain(f"{receiver.host} does not respond: {error}") from error
        reported = f"{receiver.host} returned HTTP status {answer.status}"
        if answer.status in (408, 429) or answer.status >= 500:
            pause = pause_of(answer.retry_after, now, timedelta(0))
            raise TryAgain(reported, pause.total_seconds())
        if not 200 <= answer.status < 300:
            raise Refused(f"{reported}: {answer.text}" if answer.text else reported)

    return deliver


def file(path: Path) -> Callable[[dict[str, Any]], None]:
    """Function that appends one event; it reopens the file each time, so that it can be rotated.

    Raises:
        ConfigError: the file cannot be written.

    """

    def deliver(event: dict[str, Any]) -> None:
        try:
            with path.open("ab") as lines:
                is_cut = lines.seekable() and lines.tell() and not _ends_a_line(path)
                lines.write((b"\n" if is_cut else b"") + json.dumps(event).encode() + b"\n")
        except OSError as error:
            raise TryAgain(f"{path}: {error.strerror}") from error

    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise ConfigError(f"notices.file: {path}: {error.strerror}") from error
    return deliver


def _ends_a_line(path: Path) -> bool:
    """Whether the last line is complete; not if the disk was full or power was lost."""
    with path.open("rb") as content:
        content.seek(-1, os.SEEK_END)
        return content.read(1) == b"\n"


def people(urls: Sequence[str], cluster: str) -> list[tuple[str, Callable[[str], None]]]:
    """Name and function for each address of people, which sends a sentence.

    Raises:
        ConfigError: Apprise is not installed, or an address is invalid.

    """
    if not urls:
        return []
    try:
        import apprise  # noqa: PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise ConfigError(
            "notices.apprise needs Apprise, which is not installed: pip install 'holdfast[notices]'"
        ) from error
    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # it would log the addresses
    found: list[tuple[str, Callable[[str], None]]] = []
    for number, url in enumerate(urls, 1):
        reported = apprise.Apprise()
        name = f"address {number}, by {url.partition(':')[0]}"
        if not reported.add(url):
            raise ConfigError(f"notices.apprise: {name}is not a URL that Apprise supports")
        found.append((f"people at {name}", partial(_notify, reported, f"Holdfast on {cluster}")))
    return found


def _notify(reported: Any, title: str, text: str) -> None:
    if not reported.notify(title=title, body=text):
        raise TryAgain("Apprise could not deliver it")


def addresses(given: Sequence[str], path: Path | None) -> list[str]:
    """Addresses in the configuration and in the file that it names.

    Raises:
        ConfigError: the file cannot be read.

    """
    if path is None:
        return list(given)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"notices.apprise_file: {path}: {error}") from error
    return [*given, *(line.strip() for line in lines if line.strip() and line[0] != "#")]
