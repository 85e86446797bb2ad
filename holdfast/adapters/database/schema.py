"""Database tables, and their migrations from earlier releases."""

from functools import partial
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


MIGRATIONS: Final = Table(
    "migrations",
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

_STEPS: Final = (TABLES.create_all, partial(SESSIONS.create, checkfirst=True))
"""Migration steps, one for each schema version, starting from an empty database.

The first one creates the tables of all versions, so a later step must not fail if its table exists.
"""


def migrate(connection: Connection, now: str) -> None:
    """Migrate the tables to the current version.

    Raises:
        BackendError: the tables are from a later release.

    """
    found = 0
    if inspect(connection).has_table(MIGRATIONS.name):
        versions = connection.execute(select(MIGRATIONS.c.version)).scalars().all()
        found = max(versions, default=0)
    if found > len(_STEPS):
        raise BackendError(
            f"its tables have version {found}, and this release of Holdfast knows versions up to "
            f"{len(_STEPS)}; use the release that wrote them, or a later one"
        )
    for version, step in enumerate(_STEPS[found:], found + 1):
        step(connection)
        connection.execute(insert(MIGRATIONS).values(version=version, at=now))
