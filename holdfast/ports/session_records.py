"""Port of the store of console sessions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A session of the console."""

    digest: str
    """Digest of the cookie, which itself is not stored."""

    subject: str
    """Who has logged in."""

    expires_at: datetime
    facts: Mapping[str, object]
    """What the permissions of the subject are derived from; serializable as JSON."""


class SessionRecords(Protocol):
    """Store of sessions. Several threads and processes may use it.

    When a call returns, its change is durable. Every method may raise ``BackendError``.
    """

    def add(self, session: StoredSession, now: datetime, most: int) -> None:
        """Store a session.

        Sessions that have expired at ``now`` are deleted, and of those of the same subject all but
        the ``most`` that expire last.
        """
        ...

    def find(self, digest: str) -> StoredSession | None:
        """Return the session with a digest; None if there is none, or it was removed."""
        ...

    def remove(self, digest: str) -> None:
        """Remove a session; no effect if there is none."""
        ...
