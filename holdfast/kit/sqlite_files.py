"""Checks, backs up and restores SQLite files; each has one owner, which alone calls ``recover``."""

import json
import math
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from holdfast.kit.files import sync_directory
from holdfast.model.errors import BackendError, StateDamaged, StorageFull

BACKUP_SUFFIX: Final = ".backup"
PRIVATE: Final = 0o600

_DAMAGE: Final = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
_DAMAGED_TEXT: Final = ("Could not decode to UTF-8", "malformed JSON")

JSON_COLUMNS: Final = frozenset(("body", "record", "spec", "submission"))
"""Names of the columns that hold JSON, in all databases."""

_LOGS: Final = frozenset(("events",))
"""Tables from which nothing is decided; they may be long."""

_PARTS: Final = ("", "-wal", "-shm")
_BUSY_S: Final = 10.0
_PAUSE_S: Final = 0.1
_PAUSES: Final = 10
"""Pause after a backup that was made because of a change, in seconds and as a multiple of its
duration: backups take at most a tenth of the time."""


class UnrecoverableDatabase(Exception):
    """A database is damaged, and there is no valid backup."""


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite reports that the file is not a valid database."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGE


@contextmanager
def errors_named(path: Path, remedy: str = "") -> Iterator[None]:
    """Raise errors of SQLite and of stored values as a ``BackendError`` that names the file.

    Raises:
        StorageFull: there is no space left.
        StateDamaged: the file, or JSON in it, is not valid; with ``remedy`` in the message.

    """
    advice = f"; {remedy}" if remedy else ""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise StorageFull(f"no space left on device for {path}") from error
        if is_damage(error) or str(error).startswith(_DAMAGED_TEXT):
            raise StateDamaged(f"{path} is damaged ({error}){advice}") from error
        raise BackendError(f"{path}: {error}") from error
    except json.JSONDecodeError as error:
        raise StateDamaged(f"{path} is damaged ({error}){advice}") from error
    except OSError as error:
        raise BackendError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BackendError(f"{path} is damaged: {error}") from error


def create_private(path: Path) -> None:
    """Create an empty file that only its owner may read, unless it exists.

    SQLite gives the files that it creates beside a database the same mode.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE))


def other_layout(path: Path, found: int, known: int) -> str:
    """Return why a database of another layout is refused: no layout is converted to another."""
    return (
        f"{path} has layout {found}, this release supports layout {known}; use the release that"
        " wrote it, or move the file away to start with an empty database"
    )


def backup_of(path: Path) -> Path:
    """Return the path of the backup of a database."""
    return path.with_name(path.name + BACKUP_SUFFIX)


def back_up(path: Path, target: Path) -> None:
    """Write a consistent copy of a database to ``target``, replacing an earlier one at once.

    Raises:
        sqlite3.Error: the database is damaged or cannot be read, or the copy cannot be written.
        OSError: the copy cannot be put in place.

    """
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    create_private(temporary)
    try:
        with closing(_connected(path)) as source, closing(_connected(temporary)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # the copy is one file
        if problem := _problem(temporary):  # pages are copied as they are
            raise sqlite3.DatabaseError(problem)
        temporary.replace(target)
        sync_directory(target.parent)
    finally:
        temporary.unlink(missing_ok=True)  # only there if something failed


def recover(path: Path, *, may_begin_empty: bool = False) -> str:
    """Check a database before its owner opens it, and back it up; restore a damaged one.

    A damaged file is moved aside, and the last backup takes its place. The files become readable
    by their owner only.

    Args:
        path: the database; nothing happens if it does not exist.
        may_begin_empty: whether the owner can do without what the file held.

    Returns:
        What was restored, for a person; empty if the database is sound.

    Raises:
        UnrecoverableDatabase: it is damaged and there is no valid backup; not if
            ``may_begin_empty``.
        sqlite3.Error: the database cannot be checked.
        OSError: a file cannot be moved or written.

    """
    if not path.exists():
        return ""
    backup = backup_of(path)
    for part in (*(path.with_name(path.name + part) for part in _PARTS), backup):
        with suppress(FileNotFoundError):
            part.chmod(PRIVATE)
    problem = _problem(path)
    if not problem and backup.exists() and not path.stat().st_size:
        problem = "it is empty"
    unreadable = "" if problem else _unreadable(path)
    if not problem and not unreadable:
        back_up(path, backup)
        return ""
    is_restorable = backup.is_file() and not (_problem(backup) or _unreadable(backup))
    if unreadable and not is_restorable:
        return ""  # the owner reads what can be read
    problem = problem or unreadable
    if not is_restorable and not may_begin_empty:
        raise UnrecoverableDatabase(
            f"{path} is damaged ({problem}), and {backup} is not a valid backup; restore a copy, or"
            " move the file away to start with an empty database"
        )
    begun = f"{path} was damaged ({problem}); it was moved to"
    if not is_restorable:
        aside = _moved_aside(path)
        return f"{begun} {aside}; there is no valid backup, so the state starts empty"
    made_at = datetime.fromtimestamp(backup.stat().st_mtime, UTC)
    aside = _replaced(path, backup)
    return (
        f"{begun} {aside}, and the backup of {made_at:%Y-%m-%dT%H:%M:%SZ} was restored; later"
        " changes are lost"
    )


class PromptBackup:
    """Backs up a database in use soon after each change, so that a restore loses no job."""

    def __init__(self, path: Path) -> None:
        """Prepare; the owner has called ``recover`` just now."""
        self._path = path
        self._content: object = None
        self._next_at = 0.0

    def __call__(self, content: object) -> float:
        """Make a backup if the content has changed.

        Args:
            content: another value whenever the content is another.

        Returns:
            Seconds after which to call again, because the last backup was only just made, or
            failed; infinity if the backup is current.

        """
        if content == self._content:
            return math.inf
        began = time.monotonic()
        if began >= self._next_at:
            with suppress(sqlite3.Error, OSError):  # the write itself reports a disk that is full
                back_up(self._path, backup_of(self._path))
                self._content = content
            ended = time.monotonic()
            self._next_at = ended + max(_PAUSE_S, _PAUSES * (ended - began))
            if content == self._content:
                return math.inf
        return self._next_at - time.monotonic()


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=_BUSY_S)


def _problem(path: Path) -> str:
    """Return what is wrong with a database; empty if it is sound."""
    try:
        with closing(_connected(path)) as db:
            [(found,), *_] = db.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return str(error)
        raise
    return "" if found == "ok" else " ".join(str(found).split())


def _unreadable(path: Path) -> str:
    """Return which text of a sound database cannot be read: SQLite does not notice damaged text."""
    with closing(_connected(path)) as db:
        return _unreadable_text(db)


def _unreadable_text(db: sqlite3.Connection) -> str:
    found = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    columns = [
        (table, column)
        for (table,) in found
        for (column,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))
        if table not in _LOGS
    ]
    db.text_factory = bytes
    for table, column in columns:
        try:
            for (text,) in db.execute(f'SELECT "{column}" FROM "{table}"'):  # noqa: S608 - our names
                if column in JSON_COLUMNS:
                    json.loads(text)
                elif isinstance(text, bytes):
                    text.decode()
        except (TypeError, ValueError) as error:
            return f"{column} in {table} cannot be read: {error}"
    return ""


def _replaced(path: Path, backup: Path) -> Path:
    """Put a copy of the backup in place of a damaged database; return where that is now.

    There is a database at any time, for the next start if the disk is full or the process killed.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    create_private(temporary)
    try:
        shutil.copyfile(backup, temporary)
        aside = _moved_aside(path, stays=True)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # only there if something failed
    sync_directory(path.parent)
    return aside


def _moved_aside(path: Path, *, stays: bool = False) -> Path:
    """Rename a database and the files beside it, for a person to examine.

    One that ``stays`` gets a second name, until it is replaced.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{path.name}.damaged-{stamp}-{os.urandom(2).hex()}"
    for part in _PARTS:
        found, aside = path.with_name(path.name + part), path.with_name(name + part)
        if stays and not part:
            with suppress(OSError):  # not every file system has hard links
                aside.hardlink_to(found)
                continue
        with suppress(FileNotFoundError):
            found.rename(aside)
    return path.with_name(name)
