"""Console sessions are kept, the same in memory, in SQLite and in PostgreSQL."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.adapters.database.connection import Database
from holdfast.adapters.database.sessions import DatabaseSessions
from holdfast.ports.session_records import SessionRecords, StoredSession
from tests.ports.fake_sessions import FakeSessions
from tests.ports.fakes import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def session(digest: str, subject: str = "ada", expires_at: datetime = LATER) -> StoredSession:
    return StoredSession(
        digest=digest, subject=subject, expires_at=expires_at, facts={"groups": ["a"]}
    )


@pytest.fixture(params=["memory", "database"])
def records(request, url) -> Iterator[SessionRecords]:
    if request.param == "memory":
        yield FakeSessions()
        return
    with contextlib.closing(Database(url, FakeClock(NOW))) as database:
        yield DatabaseSessions(database)


def test_a_session_is_there_until_it_is_removed(records) -> None:
    assert records.find("a") is None
    records.add(session("a"), NOW, 10)
    assert records.find("a") == session("a")
    for _ in range(2):
        records.remove("a")
        assert records.find("a") is None


def test_expired_sessions_and_the_oldest_of_a_subject_are_deleted(records) -> None:
    for number in range(3):
        records.add(session(f"a{number}", expires_at=NOW + timedelta(minutes=number)), NOW, 3)
    records.add(session("b", "bob"), NOW, 3)
    assert records.find("a0") is None  # expired by then
    records.add(session("a3"), NOW, 2)

    assert [records.find(f"a{number}") is not None for number in range(4)] == [
        False,
        False,
        True,
        True,
    ]
    assert records.find("b") is not None


def test_facts_are_stored_as_they_are(records) -> None:
    facts = {"groups": ["ä", "\u2028"], "n": 1, "none": None}
    one = StoredSession(digest="a", subject="x", expires_at=LATER, facts=facts)
    records.add(one, NOW, 10)

    assert records.find("a") == one
