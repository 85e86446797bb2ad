"""Authentication of the console: tokens, cookie sessions and CSRF protection."""

import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.api.identity import CONSOLE, AccessKey, Grant, Principal, Role, token_digest
from holdfast.api.problems import AccessDenied
from holdfast.model.errors import HoldfastError
from holdfast.ports.clock import Clock
from holdfast.ports.session_records import SessionRecords, StoredSession

LIFETIME: Final = timedelta(hours=12)
"""Lifetime of a session: one shift, so that nobody logs in twice in it."""

TRIES: Final = 5
TRIES_WINDOW: Final = timedelta(minutes=1)
"""Wrong tokens accepted from one address within that time."""

FRESH: Final = timedelta(seconds=5)
"""Time until a session is read again: a logout at another server of the same database is effective
after it."""

SESSIONS: Final = 100
"""Sessions of one person; the oldest ends with the next login."""

_CACHED: Final = 1000
_COOKIE_BYTES: Final = 32
_COOKIE_LIMIT: Final = 64


OIDC: Final = "oidc:"
"""Beginning of the subject of a session that another provider has authenticated."""


class WrongToken(HoldfastError):
    """The token is unknown."""


class TooManyTries(HoldfastError):
    """Too many wrong tokens: further tokens are rejected for now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSession:
    """Session of a person who has logged in."""

    principal: Principal
    expires_at: datetime
    proof: str
    """CSRF token, known only to pages of this session: sent with every request that changes
    something."""


class Sessions:
    """Creates and verifies sessions, which survive a restart of the server. Thread-safe.

    The permissions of a session are those that its owner has now: without the key, or with another
    token of the key, it ends.
    """

    def __init__(
        self,
        keys: Sequence[AccessKey],
        records: SessionRecords,
        clock: Clock,
        groups: Mapping[str, Grant] | None = None,
    ) -> None:
        """Verify sessions.

        Args:
            keys: all keys; those without a token cannot log in.
            records: stored sessions.
            clock: current time.
            groups: ``group -> permissions`` of people whom another provider authenticates.

        """
        self._groups = groups or {}
        self._keys = {key.access_key_id: key for key in keys if key.token_sha256}
        self._records = records
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: dict[str, list[datetime]] = {}
        self._cached: dict[str, tuple[StoredSession, datetime]] = {}

    @property
    def are_possible(self) -> bool:
        """Whether any key has a token."""
        return bool(self._keys)

    def begin(self, token: str, address: str) -> tuple[str, ConsoleSession]:
        """Cookie and session for the owner of a token.

        Args:
            token: token that the person entered.
            address: IP address of the client.

        Raises:
            WrongToken: the token is unknown.
            TooManyTries: see ``TRIES``.
            AccessDenied: the owner may not use the console.
            BackendError: the session cannot be stored.

        """
        now = self._clock.now()
        owner = self._owner(token, address, now)
        owner.principal.permit(CONSOLE)
        ends = now + LIFETIME
        cookie = secrets.token_urlsafe(_COOKIE_BYTES)
        stored = StoredSession(
            digest=_digest(cookie),
            subject=owner.access_key_id,
            expires_at=min(ends, owner.expires_at or ends),
            facts={"token_sha256": owner.token_sha256},
        )
        self._records.add(stored, now, SESSIONS)
        return cookie, _session(stored, owner.principal, cookie)

    def identify(self, token: str, address: str) -> Principal:
        """Owner of a token, without a session: for programs such as Prometheus.

        Raises:
            WrongToken: the token is unknown.
            TooManyTries: see ``TRIES``.
            AccessDenied: the owner may not use the console.

        """
        principal = self._owner(token, address, self._clock.now()).principal
        principal.permit(CONSOLE)
        return principal

    def admit(self, subject: str, person: str, groups: Sequence[str]) -> tuple[str, ConsoleSession]:
        """Cookie and session for a person whom another provider has authenticated.

        Args:
            subject: unique ID of the person, which begins with ``OIDC``.
            person: name, recorded as requester.
            groups: groups of the person.

        Raises:
            AccessDenied: no group of the person has a role.
            BackendError: the session cannot be stored.

        """
        now = self._clock.now()
        cookie = secrets.token_urlsafe(_COOKIE_BYTES)
        stored = StoredSession(
            digest=_digest(cookie),
            subject=subject,
            expires_at=now + LIFETIME,
            facts={"person": person, "groups": list(groups)},
        )
        principal = self._member(stored)
        if principal is None:
            raise AccessDenied(f"{person} is in none of the groups that have a role here")
        principal.permit(CONSOLE)
        self._records.add(stored, now, SESSIONS)
        return cookie, _session(stored, principal, cookie)

    def _member(self, stored: StoredSession) -> Principal | None:
        groups = stored.facts.get("groups")
        listed = groups if isinstance(groups, list | tuple) else ()
        grants = [grant for name, grant in self._groups.items() if name in listed]
        if not grants:
            return None
        highest = max(grants, key=lambda grant: list(Role).index(grant.role))
        return highest.principal(str(stored.facts["person"]))

    def _owner(self, token: str, address: str, now: datetime) -> AccessKey:
        with self._lock:
            recent = {
                one: [at for at in times if now - at < TRIES_WINDOW]
                for one, times in self._wrong.items()
            }
            self._wrong = {one: times for one, times in recent.items() if times}
            if len(self._wrong.get(address, ())) >= TRIES:
                raise TooManyTries(
                    f"{TRIES} wrong tokens from {address or 'your address'}; try again in one "
                    "minute"
                )
            owner, given = None, token_digest(token)
            for key in self._keys.values():  # all keys: constant time
                if _is_equal(key.token_sha256, given):
                    owner = key
            if owner is None or owner.is_expired(now):
                self._wrong.setdefault(address, []).append(now)
                raise WrongToken("unknown or expired token; use the console token of your key")
            return owner

    def known(self, cookie: str) -> ConsoleSession | None:
        """Session of a cookie that was read a moment ago; never waits."""
        now = self._clock.now()
        stored, read_at = self._cached.get(_digest(cookie), (None, now))
        if stored is None or now - read_at >= FRESH:
            return None
        return self._valid(stored, cookie, now)

    def find(self, cookie: str) -> ConsoleSession | None:
        """Session of a cookie; None if the cookie is invalid or expired.

        Raises:
            BackendError: the sessions cannot be read.

        """
        if not cookie or len(cookie) > _COOKIE_LIMIT:
            return None
        now, digest = self._clock.now(), _digest(cookie)
        stored = self._records.find(digest)
        if stored is None:
            self._cached.pop(digest, None)
            return None
        if len(self._cached) >= _CACHED:
            self._cached = {}
        self._cached[digest] = (stored, now)
        return self._valid(stored, cookie, now)

    def end(self, cookie: str) -> None:
        """End a session.

        Raises:
            BackendError: it could not be ended.

        """
        digest = _digest(cookie)
        self._records.remove(digest)
        self._cached.pop(digest, None)

    def proves(self, session: ConsoleSession, proof: str) -> bool:
        """Whether a page of that session made the request."""
        return _is_equal(session.proof, proof)

    def _valid(self, stored: StoredSession, cookie: str, now: datetime) -> ConsoleSession | None:
        if stored.subject.startswith(OIDC):
            member = self._member(stored)
            if member is None or member.rejection(CONSOLE) or stored.expires_at <= now:
                return None
            return _session(stored, member, cookie)
        key = self._keys.get(stored.subject)
        if key is None or stored.facts.get("token_sha256") != key.token_sha256:
            return None
        if stored.expires_at <= now or key.is_expired(now) or key.principal.rejection(CONSOLE):
            return None
        return _session(stored, key.principal, cookie)


def _session(stored: StoredSession, principal: Principal, cookie: str) -> ConsoleSession:
    proof = hmac.new(cookie.encode(), b"proof", hashlib.sha256).hexdigest()
    return ConsoleSession(principal=principal, expires_at=stored.expires_at, proof=proof)


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()


def _is_equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
