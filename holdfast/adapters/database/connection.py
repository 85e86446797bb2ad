"""Database connection: durable transactions, and errors with their remedy."""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from holdfast.adapters.database.schema import set_up
from holdfast.kit.sqlite_files import (
    PromptBackup,
    UnrecoverableDatabase,
    create_private,
    recover,
)
from holdfast.model.errors import BackendError, ConfigError, StateDamaged, StorageFull
from holdfast.ports.clock import Clock

_TIMEOUT_S: Final = 10
"""Timeout in seconds for the write lock of another process."""

_WRITERS: Final = 0x686F6C64666173
"""Key of the writers' advisory lock in PostgreSQL."""

_DISK_FULL: Final = ("database or disk is full", "No space left on device", "disk_full")
_ACCESS_ERRORS: Final = ("unable to open database file", "readonly database")
_DAMAGED: Final = ("malformed", "not a database")

_EXPECTED: Final = "expected sqlite:////path or postgresql+psycopg://host/name"


class Database:
    """A database. Every method raises ``BackendError`` if it is unavailable.

    Args:
        url: ``sqlite:////path/of/file`` or ``postgresql+psycopg://...``.
        clock: timestamps the creation of the tables.

    Raises:
        ConfigError: the URL is invalid, or its driver is not installed.
        BackendError: the database cannot be used.

    """

    def __init__(self, url: str, clock: Clock) -> None:
        try:
            parsed = make_url(url)
            _refuse_other(parsed)
            options: dict[str, Any] = {"pool_pre_ping": True}
            if parsed.get_backend_name() == "sqlite":
                with suppress(OSError):  # opening the database reports it
                    create_private(Path(str(parsed.database)))
                options = {"connect_args": {"timeout": _TIMEOUT_S}}
            self._engine = create_engine(parsed, **options)
        except (ArgumentError, NoSuchModuleError) as error:
            raise ConfigError(f"database: {error}; {_EXPECTED}") from None
        except ModuleNotFoundError as missing:
            raise ConfigError(
                f"database: {missing.name} is not installed, and {parsed.drivername} needs it: "
                "pip install 'holdfast[postgresql]'"
            ) from None
        self._name = parsed.render_as_string(hide_password=True)
        self._still: dict[str, Any] = {}
        self._writes = 0
        self._changes: PromptBackup | None = None
        if parsed.get_backend_name() == "sqlite":
            self._changes = PromptBackup(Path(str(parsed.database)))
            _prepare_sqlite(self._engine)
        else:
            self._still = {"isolation_level": "REPEATABLE READ"}
            _prepare_postgresql(self._engine)
        with ExitStack() as failed:
            failed.callback(self.close)
            with self.writing() as connection:
                set_up(connection, clock.now().isoformat())
            failed.pop_all()

    def back_up_changes(self) -> float:
        """Back an SQLite file up if this object has changed it; for its owner, regularly.

        Returns:
            Seconds after which to call again if nothing is written meanwhile.

        """
        return math.inf if self._changes is None else self._changes(self._writes)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read-only transaction on a consistent snapshot."""
        with self._errors_named(), self._engine.connect() as connection:
            yield connection.execution_options(**self._still)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Write transaction; durable once the block has ended."""
        with (
            self._errors_named(),
            self._engine.connect() as connection,
            connection.execution_options(writes=True).begin(),
        ):
            yield connection
        self._writes += 1

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            text = str(cause).strip() or type(cause).__name__
            if any(fragment in text for fragment in _DISK_FULL):
                raise StorageFull(f"no space left on device for {self._name}") from error
            if any(fragment in text for fragment in _DAMAGED):
                raise StateDamaged(
                    f"{self._name} is damaged ({text}); restart holdfast api: it restores the last "
                    "backup"
                ) from error
            if any(fragment in text for fragment in _ACCESS_ERRORS):
                raise BackendError(
                    f"{self._name}: {text}; its directory must exist, and this user needs "
                    "write access to both"
                ) from error
            raise BackendError(f"{self._name}: {text}") from error
        except BackendError as error:
            raise type(error)(f"{self._name}: {error}") from error
        except ValueError as error:
            raise BackendError(f"{self._name} contains invalid data: {error}") from error


def recover_file(url: str) -> str:
    """Check an SQLite file before its owner opens it, back it up, or restore a damaged one.

    Returns:
        Message about what was restored; empty if the file is intact, or not SQLite.

    Raises:
        BackendError: the file cannot be checked or restored.

    """
    try:
        parsed = make_url(url)
    except ArgumentError:  # opening the database reports it
        return ""
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return ""
    path = Path(str(parsed.database))
    try:
        return recover(path)
    except UnrecoverableDatabase as error:
        raise BackendError(str(error)) from error
    except sqlite3.Error as error:
        raise BackendError(f"{path}: {error}") from error
    except OSError as error:
        raise BackendError(f"{path}: {error.strerror}") from error


def _refuse_other(url: URL) -> None:
    """Reject databases in memory and untested kinds of databases.

    Raises:
        ConfigError: the URL names such a database.

    """
    kind = url.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise ConfigError(f"database: {kind} is not supported; {_EXPECTED}")
    if kind == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigError(f"database: {url} has no file path; {_EXPECTED}")


def _prepare_postgresql(engine: Engine) -> None:
    """Serialize writers, as in SQLite: counts in a transaction still hold at its commit."""

    def begins(connection: Connection) -> None:
        if connection.get_execution_options().get("writes", False):
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_TIMEOUT_S}s'")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS})")

    event.listen(engine, "begin", begins)


def _prepare_sqlite(engine: Engine) -> None:
    """Disable implicit transactions of the driver, as SQLAlchemy recommends."""

    def connected(driver: sqlite3.Connection, _record: object) -> None:
        driver.isolation_level = None
        driver.execute("PRAGMA journal_mode = WAL")
        driver.execute("PRAGMA foreign_keys = ON")
        driver.execute("PRAGMA synchronous = FULL")  # accepted requests survive power loss

    def begins(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begins)
