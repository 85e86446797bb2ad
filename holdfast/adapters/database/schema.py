"""Database tables."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
)

from holdfast.model.errors import BackendError

TABLES: Final = MetaData()


def _of_cluster() -> Column[str]:
    where = ForeignKey("clusters.name", ondelete="CASCADE")
    return Column("cluster", Text, where, primary_key=True)


LAYOUT: Final = Table(
    "layout",
    TABLES,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("at", Text, nullable=False),
)
CLUSTERS: Final = Table(
    "clusters",
    TABLES,
    Column("name", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)
GROUPS: Final = Table(
    "instance_groups",
    TABLES,
    _of_cluster(),
    Column("name", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("body", Text, nullable=False),
)
NODES: Final = Table(
    "nodes",
    TABLES,
    _of_cluster(),
    Column("logical_id", Text, primary_key=True),
    Column("instance_group", Text, nullable=False),
    Column("instance_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("body", Text, nullable=False),
)
EVENTS: Final = Table(
    "events",
    TABLES,
    Column("number", Integer, primary_key=True),
    Column("cluster", Text, ForeignKey("clusters.name", ondelete="CASCADE"), nullable=False),
    Column("id", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),
    Index("events_of_cluster", "cluster", "number"),
)
TAGS: Final = Table(
    "tags",
    TABLES,
    _of_cluster(),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
TOKENS: Final = Table(
    "client_tokens",
    TABLES,
    _of_cluster(),
    Column("token", Text, primary_key=True),
    Column("at", Text, nullable=False),
    Column("answer", Text, nullable=False),
)
REQUESTS: Final = Table(
    "requests",
    TABLES,
    Column("number", Integer, primary_key=True),
    Column("at", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("person", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("body", Text, nullable=False),
)

USED_WORDS: Final = Table(
    "used_words",
    TABLES,
    Column("word", Text, primary_key=True),
    Column("at", Text, nullable=False),
)

SESSIONS: Final = Table(
    "console_sessions",
    TABLES,
    Column("digest", Text, primary_key=True),
    Column("subject", Text, nullable=False),
    Column("expires_at", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index("sessions_of_subject", "subject"),
)

POLICIES: Final = Table(
    "policies",
    TABLES,
    Column("id", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

_VERSION: Final = 3


def set_up(connection: Connection, now: str) -> None:
    """Create the tables in a database that has none of them, and those that it lacks.

    Earlier releases of the same version ignore the tables that they do not know.

    Raises:
        BackendError: the tables have another layout, which this release does not read.

    """
    present = inspect(connection)
    if not any(present.has_table(name) for name in TABLES.tables):
        TABLES.create_all(connection)
        connection.execute(insert(LAYOUT).values(version=_VERSION, at=now))
        return
    found = None
    if present.has_table(LAYOUT.name):
        found = connection.execute(select(LAYOUT.c.version)).scalar_one_or_none()
    if found != _VERSION:
        raise BackendError(
            f"schema version {found or 'unknown'} is not supported, expected {_VERSION}; use the"
            " release that wrote the tables, or another database to start empty"
        )
    TABLES.create_all(connection)
