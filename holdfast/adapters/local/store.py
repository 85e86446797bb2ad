"""State of one run in SQLite, which other commands read while the run writes it."""

import json
import sqlite3
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from holdfast.kit.serial import from_plain, to_plain
from holdfast.kit.sqlite_files import (
    PromptBackup,
    UnrecoverableDatabase,
    create_private,
    errors_named,
    other_layout,
    recover,
)
from holdfast.model.errors import BackendError
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec
from holdfast.model.nodes import Breaker, NodeRecord
from holdfast.model.requests import Request

if TYPE_CHECKING:  # the classes of all events take a tenth of the time of a command
    from holdfast.model.events import Event

T = TypeVar("T")

_VERSION: Final = 4
_SCHEMA: Final = """
CREATE TABLE nodes (
    name TEXT PRIMARY KEY, provider_id TEXT NOT NULL, replaces TEXT NOT NULL, record TEXT NOT NULL,
    instance_group TEXT NOT NULL, launched_at TEXT NOT NULL
);
CREATE TABLE jobs (
    name TEXT PRIMARY KEY, spec TEXT NOT NULL, record TEXT NOT NULL,
    cancel_requested INTEGER NOT NULL DEFAULT 0, submission TEXT NOT NULL
);
CREATE TABLE incidents (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, body TEXT NOT NULL);
CREATE TABLE requests (node TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE holds (node TEXT PRIMARY KEY, why TEXT NOT NULL);
CREATE TABLE breaker (body TEXT NOT NULL);
CREATE TABLE offenders (provider_id TEXT PRIMARY KEY);
CREATE TABLE cluster (uid TEXT NOT NULL);
CREATE TABLE events (
    number INTEGER PRIMARY KEY, at TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL
);
CREATE TABLE groups (name TEXT PRIMARY KEY, count INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE leaving (node TEXT PRIMARY KEY);
CREATE TABLE launches (job TEXT PRIMARY KEY, body TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """How a job was submitted."""

    id: str
    """Unique among all jobs."""

    name: str
    """Name for people; successive jobs may share it."""

    command: tuple[str, ...]
    pid: int
    """Process ID of ``holdfast run``."""

    started_at: datetime
    checkpoint_dir: str


class LocalStore:
    """Reads and writes one ``state.db``.

    Every method raises ``BackendError`` if the file cannot be used, ``StorageFull`` if its disk
    is full. Each call is one transaction; the WAL lets others read meanwhile.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        with errors_named(path):
            if create and not path.exists():
                _create(path)
            if not path.is_file():
                raise BackendError(f"{path} does not exist")
            self._db = sqlite3.connect(path, timeout=10.0, isolation_level=None)
            with ExitStack() as failed:
                failed.callback(self._db.close)
                self._db.execute("PRAGMA synchronous = NORMAL")
                [(version,)] = self._db.execute("PRAGMA user_version")
                if version != _VERSION:
                    raise BackendError(other_layout(path, version, _VERSION))
                failed.pop_all()
            self._inode = path.stat().st_ino
        self._path = path
        self._changes = PromptBackup(path)

    def back_up_changes(self) -> None:
        """Back the file up if it has changed; for its owner, regularly, after ``recover_state``."""
        with errors_named(self._path):
            [(by_others,)] = self._db.execute("PRAGMA data_version")
        self._changes((by_others, self._db.total_changes))

    def is_replaced(self) -> bool:
        """Whether another file has taken the place of this one: its owner has restored it."""
        try:
            return self._path.stat().st_ino != self._inode
        except OSError:  # its directory was moved: the cluster is deleted
            return False

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def uid(self) -> str | None:
        """Return the unique ID of the cluster; None for a plain run."""
        rows = self._read("SELECT uid FROM cluster")
        return str(rows[0][0]) if rows else None

    # Nodes

    def nodes(self) -> dict[str, tuple[str, str, NodeRecord]]:
        """Return ``name -> (provider_id, replaces, record)``."""
        rows = self._read("SELECT name, provider_id, replaces, record FROM nodes ORDER BY name")
        return {
            name: (machine, old, self._load(NodeRecord, text)) for name, machine, old, text in rows
        }

    def add_node(
        self, name: str, provider_id: str, replaces: str, record: NodeRecord, *, group: str = ""
    ) -> None:
        """Add a node that is being launched; no effect if the name exists."""
        self._write(
            "INSERT OR IGNORE INTO nodes VALUES (?, ?, ?, ?, ?, ?)",
            name, provider_id, replaces, _dump(record), group, to_plain(record.phase_since),
        )  # fmt: skip

    def node_groups(self) -> dict[str, str]:
        """Return ``node -> instance group``; empty for the nodes of a run."""
        return dict(self._read("SELECT name, instance_group FROM nodes"))

    def leaving(self) -> frozenset[str]:
        """Return the nodes that are being removed on request."""
        return frozenset(row[0] for row in self._read("SELECT node FROM leaving"))

    def put_node(self, name: str, record: NodeRecord) -> None:
        """Store the record of an existing node."""
        self._write("UPDATE nodes SET record = ? WHERE name = ?", _dump(record), name)

    def remove_node(self, name: str) -> None:
        """Delete a node, its request and its hold."""
        with self._transaction():
            self._write("DELETE FROM requests WHERE node = ?", name)
            self._write("DELETE FROM holds WHERE node = ?", name)
            self._write("DELETE FROM leaving WHERE node = ?", name)
            self._write("DELETE FROM nodes WHERE name = ?", name)

    # Requests by people

    def requests(self) -> dict[str, Request]:
        """Return ``node -> request``."""
        rows = self._read("SELECT node, body FROM requests")
        return {node: self._load(Request, text) for node, text in rows}

    def put_request(self, node: str, request: Request) -> None:
        """Store a request for a node, in place of a pending one."""
        self._write("INSERT OR REPLACE INTO requests VALUES (?, ?)", node, _dump(request))

    def clear_request(self, node: str, request_id: str) -> None:
        """Delete a request, unless a later one has replaced it."""
        self._write(
            "DELETE FROM requests WHERE node = ? AND json_extract(body, '$.id') = ?",
            node, request_id,
        )  # fmt: skip

    def holds(self) -> dict[str, str]:
        """Return ``node -> why its repairs are paused``."""
        return dict(self._read("SELECT node, why FROM holds"))

    def hold(self, node: str, why: str) -> None:
        """Pause repairs on a node; an empty reason resumes them."""
        if why:
            self._write("INSERT OR REPLACE INTO holds VALUES (?, ?)", node, why)
        else:
            self._write("DELETE FROM holds WHERE node = ?", node)

    # Breaker and offenders

    def breaker(self) -> Breaker:
        """Return the state of the circuit breaker."""
        rows = self._read("SELECT body FROM breaker")
        return self._load(Breaker, rows[0][0]) if rows else Breaker()

    def put_breaker(self, breaker: Breaker) -> None:
        """Store the state of the circuit breaker."""
        self._write("INSERT OR REPLACE INTO breaker (rowid, body) VALUES (1, ?)", _dump(breaker))

    def offenders(self) -> frozenset[str]:
        """Return the ``provider_id`` of machines that must not be taken back."""
        return frozenset(row[0] for row in self._read("SELECT provider_id FROM offenders"))

    def add_offender(self, provider_id: str) -> None:
        """Store a machine that must not be taken back."""
        self._write("INSERT OR IGNORE INTO offenders VALUES (?)", provider_id)

    # Jobs

    def jobs(self) -> dict[str, tuple[JobSpec, JobRecord, bool]]:
        """Return ``JobSpec.name -> (spec, record, whether cancel is requested)``, oldest first."""
        rows = self._read("SELECT name, spec, record, cancel_requested FROM jobs ORDER BY rowid")
        return {row[0]: self._job(*row[1:]) for row in rows}

    def active_jobs(self) -> dict[str, tuple[JobSpec, JobRecord, bool]]:
        """Return the active ``jobs``; fast, however many jobs have ended."""
        rows = self._read(
            "SELECT name, spec, record, cancel_requested FROM jobs "
            "WHERE json_extract(record, '$.phase') NOT IN (?, ?, ?) ORDER BY rowid",
            *(phase for phase in JobPhase if phase.is_final),
        )
        return {row[0]: self._job(*row[1:]) for row in rows}

    def job(self, name: str) -> tuple[JobSpec, JobRecord, bool]:
        """Return one of ``jobs``.

        Raises:
            KeyError: no job has that ``JobSpec.name``.

        """
        rows = self._read("SELECT spec, record, cancel_requested FROM jobs WHERE name = ?", name)
        if not rows:
            raise KeyError(name)
        return self._job(*rows[0])

    def submissions(self) -> dict[str, Submission]:
        """Return ``JobSpec.name -> submission``, oldest first."""
        rows = self._read("SELECT name, submission FROM jobs ORDER BY rowid")
        return {name: self._load(Submission, text) for name, text in rows}

    def add_job(self, spec: JobSpec, record: JobRecord, submission: Submission) -> None:
        """Submit a job; no effect if its ``JobSpec.name`` exists."""
        self._write(
            "INSERT OR IGNORE INTO jobs (name, spec, record, submission) VALUES (?, ?, ?, ?)",
            spec.name, _dump(spec), _dump(record), _dump(submission),
        )  # fmt: skip

    def put_job(self, name: str, record: JobRecord) -> None:
        """Store the record of an existing job."""
        self._write("UPDATE jobs SET record = ? WHERE name = ?", _dump(record), name)

    def cancel_job(self, name: str) -> None:
        """Store the request to cancel a job."""
        self._write("UPDATE jobs SET cancel_requested = 1 WHERE name = ?", name)

    # Incidents: this class is the port's adapter

    def get(self, incident_id: str) -> Incident | None:
        """See ``IncidentStore.get``."""
        rows = self._read("SELECT body FROM incidents WHERE id = ?", incident_id)
        return self._load(Incident, rows[0][0]) if rows else None

    def put(self, incident: Incident) -> None:
        """See ``IncidentStore.put``."""
        self._write(
            "INSERT INTO incidents (id, body) VALUES (?, ?) "
            "ON CONFLICT (id) DO UPDATE SET body = excluded.body",
            incident.id, _dump(incident),
        )  # fmt: skip

    def delete(self, incident_id: str) -> None:
        """See ``IncidentStore.delete``."""
        self._write("DELETE FROM incidents WHERE id = ?", incident_id)

    def list_incidents(self) -> tuple[Incident, ...]:
        """See ``IncidentStore.list_incidents``."""
        rows = self._read("SELECT body FROM incidents ORDER BY number")
        return tuple(self._load(Incident, row[0]) for row in rows)

    # Events

    def add_event(self, at: datetime, event: "Event") -> None:
        """Append an event."""
        self._write(
            "INSERT INTO events (at, name, body) VALUES (?, ?, ?)",
            to_plain(at), event.name, _dump(event),
        )  # fmt: skip

    def event_count(self) -> int:
        """Return the number of events; none is ever deleted."""
        [(count,)] = self._read("SELECT count(*) FROM events")
        return int(count)

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        """Return the events, oldest first: ``at``, ``event`` and the fields of its class.

        Args:
            after: number of events to skip at the start.

        """
        rows = self._read(
            "SELECT at, name, body FROM events WHERE number > ? ORDER BY number", after
        )
        try:
            return [{"at": at, "event": name, **json.loads(body)} for at, name, body in rows]
        except json.JSONDecodeError as error:  # no backup is restored for a past event
            raise BackendError(f"{self._path}: an event is damaged: {error}") from error

    def _job(self, spec: str, record: str, cancel: int) -> tuple[JobSpec, JobRecord, bool]:
        return self._load(JobSpec, spec), self._load(JobRecord, record), bool(cancel)

    def _load(self, kind: type[T], text: str) -> T:
        with errors_named(self._path):
            loaded: T = _parsed(cast(Hashable, kind), text)
            return loaded

    def _read(self, statement: str, *values: object) -> list[Any]:
        with errors_named(self._path):
            return self._db.execute(statement, values).fetchall()

    def _write(self, statement: str, *values: object) -> None:
        with errors_named(self._path):
            self._db.execute(statement, values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._write("BEGIN IMMEDIATE")
        try:
            yield
            self._write("COMMIT")
        finally:
            if self._db.in_transaction:  # SQLite itself rolls back after a full disk
                self._write("ROLLBACK")


def recover_state(path: Path) -> str:
    """Check the file before its owner opens it, back it up, or restore a damaged one.

    Returns:
        What was restored, for a person; empty if the file is sound.

    Raises:
        BackendError: the file cannot be checked or restored.

    """
    try:
        with errors_named(path):
            return recover(path)
    except UnrecoverableDatabase as error:
        raise BackendError(str(error)) from error


def _create(path: Path) -> None:
    """Create the file under another name first, so that readers never see a partial one."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.unlink(missing_ok=True)
    create_private(unfinished)
    db = sqlite3.connect(unfinished, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
    finally:
        db.close()
    unfinished.rename(path)


def _dump(value: object) -> str:
    return json.dumps(to_plain(value))


@lru_cache(maxsize=256)  # each round reads all records, few of which have changed
def _parsed(kind: type[T], text: str) -> T:
    return from_plain(kind, json.loads(text))
