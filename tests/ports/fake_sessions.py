"""``SessionRecords`` in memory."""

from datetime import datetime

from holdfast.model.errors import BackendError
from holdfast.ports.session_records import StoredSession


class FakeSessions:
    """See ``SessionRecords``; ``trouble`` is the error of every call, if any."""

    def __init__(self) -> None:
        self.trouble = ""
        self._stored: dict[str, StoredSession] = {}

    def add(self, session: StoredSession, now: datetime, most: int) -> None:
        """See ``SessionRecords.add``."""
        self._fail()
        valid = [one for one in self._stored.values() if one.expires_at > now]
        own = [one for one in valid if one.subject == session.subject]
        own.sort(key=lambda one: one.expires_at, reverse=True)
        old = {one.digest for one in own[max(0, most - 1) :]}
        self._stored = {one.digest: one for one in valid if one.digest not in old}
        self._stored[session.digest] = session

    def find(self, digest: str) -> StoredSession | None:
        """See ``SessionRecords.find``."""
        self._fail()
        return self._stored.get(digest)

    def remove(self, digest: str) -> None:
        """See ``SessionRecords.remove``."""
        self._fail()
        self._stored.pop(digest, None)

    def _fail(self) -> None:
        if self.trouble:
            raise BackendError(self.trouble)
