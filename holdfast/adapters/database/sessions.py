"""``SessionRecords`` in a database."""

import json
from datetime import datetime

from sqlalchemy import delete, insert, select

from holdfast.adapters.database.connection import Database
from holdfast.adapters.database.schema import SESSIONS
from holdfast.kit.serial import from_plain, to_plain
from holdfast.ports.session_records import StoredSession


class DatabaseSessions:
    """See ``SessionRecords``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, session: StoredSession, now: datetime, most: int) -> None:
        """See ``SessionRecords.add``."""
        row = {
            "digest": session.digest,
            "subject": session.subject,
            "expires_at": to_plain(session.expires_at),
            "body": json.dumps(to_plain(session)),
        }
        own = select(SESSIONS.c.digest).where(SESSIONS.c.subject == session.subject)
        in_order = own.order_by(SESSIONS.c.expires_at.desc(), SESSIONS.c.digest)
        with self._database.writing() as connection:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.expires_at <= to_plain(now)))
            digests = connection.execute(in_order).scalars().all()
            old = SESSIONS.c.digest.in_(digests[max(0, most - 1) :])
            connection.execute(delete(SESSIONS).where(old))
            connection.execute(insert(SESSIONS).values(row))

    def find(self, digest: str) -> StoredSession | None:
        """See ``SessionRecords.find``."""
        query = select(SESSIONS.c.body).where(SESSIONS.c.digest == digest)
        with self._database.reading() as connection:
            body = connection.execute(query).scalar_one_or_none()
            return None if body is None else from_plain(StoredSession, json.loads(body))

    def remove(self, digest: str) -> None:
        """See ``SessionRecords.remove``."""
        with self._database.writing() as connection:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.digest == digest))
