"""Authentication of the console: tokens, cookie sessions and CSRF protection."""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.api.identity import AccessKey
from holdfast.model.errors import HoldfastError
from holdfast.ports.clock import Clock

LIFETIME: Final = timedelta(hours=12)
"""Lifetime of a session: one shift, so that nobody logs in twice in it."""

TRIES: Final = 5
TRIES_WINDOW: Final = timedelta(minutes=1)
"""Wrong tokens accepted from one address within that time."""


class WrongToken(HoldfastError):
    """The token is unknown."""


class TooManyTries(HoldfastError):
    """Too many wrong tokens: further tokens are rejected for now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSession:
    """Session of a person who has logged in."""

    key: AccessKey
    expires_at: datetime
    proof: str
    """CSRF token, known only to pages of this session: sent with every request that changes
    something."""


class Sessions:
    """Creates and verifies sessions: signed cookies, which survive a restart of the server.

    A cookie is signed with its owner's token: revoking the token also ends the session.
    """

    def __init__(self, keys: Sequence[AccessKey], clock: Clock) -> None:
        self._keys = {key.access_key_id: key for key in keys if key.token}
        self._clock = clock
        self._ended: dict[str, datetime] = {}
        self._wrong: dict[str, list[datetime]] = {}

    @property
    def are_possible(self) -> bool:
        """Whether any key has a token."""
        return bool(self._keys)

    def begin(self, token: str, address: str) -> str:
        """Cookie of a new session for the owner of a token.

        Args:
            token: token that the person entered.
            address: IP address of the client.

        Raises:
            WrongToken: the token is unknown.
            TooManyTries: see ``TRIES``.

        """
        now = self._clock.now()
        recent = {
            one: [at for at in times if now - at < TRIES_WINDOW]
            for one, times in self._wrong.items()
        }
        self._wrong = {one: times for one, times in recent.items() if times}
        if len(self._wrong.get(address, ())) >= TRIES:
            raise TooManyTries(
                f"{TRIES} wrong tokens from {address or 'your address'}; try again in one minute"
            )
        owner, given = None, _digest(token)
        for key in self._keys.values():  # all keys: constant time
            if hmac.compare_digest(_digest(key.token), given):
                owner = key
        if owner is None:
            self._wrong.setdefault(address, []).append(now)
            raise WrongToken("unknown token; use the token of your key in api.toml")
        expires = int((now + LIFETIME).timestamp())
        text = f"{owner.access_key_id}.{expires}.{secrets.token_urlsafe(12)}"
        return f"{text}.{_signature(owner, 'session', text)}"

    def find(self, cookie: str) -> ConsoleSession | None:
        """Session of a cookie; None if the cookie is invalid or expired."""
        text, _, signature = cookie.rpartition(".")
        key_id, _, rest = text.partition(".")
        key = self._keys.get(key_id)
        if key is None or not _is_equal(_signature(key, "session", text), signature):
            return None
        expires_at = datetime.fromtimestamp(int(rest.partition(".")[0]), UTC)
        if expires_at <= self._clock.now() or text in self._ended:
            return None
        return ConsoleSession(key=key, expires_at=expires_at, proof=_signature(key, "proof", text))

    def end(self, cookie: str) -> None:
        """End a session."""
        session = self.find(cookie)
        if session is not None:
            now = self._clock.now()
            self._ended = {text: at for text, at in self._ended.items() if at > now}
            self._ended[cookie.rpartition(".")[0]] = session.expires_at

    def proves(self, session: ConsoleSession, proof: str) -> bool:
        """Whether a page of that session made the request."""
        return _is_equal(session.proof, proof)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _signature(key: AccessKey, purpose: str, text: str) -> str:
    return hmac.new(key.token.encode(), f"{purpose} {text}".encode(), hashlib.sha256).hexdigest()


def _is_equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
