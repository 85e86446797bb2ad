"""Persistent state of the controller of a Slurm cluster, in SQLite."""

import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.kit.serial import from_plain, to_plain
from holdfast.kit.sqlite_files import (
    PromptBackup,
    create_private,
    errors_named,
    other_layout,
    recover,
)
from holdfast.model.errors import BackendError
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobRecord
from holdfast.model.nodes import Breaker, NodeRecord
from holdfast.model.requests import Request

T = TypeVar("T")

FILE: Final = "state.db"

_VERSION: Final = 2
_SCHEMA: Final = """
CREATE TABLE nodes (name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE requests (name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE holds (name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE offenders (name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE incidents (number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, body TEXT NOT NULL);
CREATE TABLE jobs (name TEXT PRIMARY KEY, body TEXT NOT NULL);
"""

_BUSY_S: Final = 10.0
_BUSY_PAUSE_S: Final = 0.02

_RESTART: Final = "restart the controller: it restores the last backup"

_BREAKER: Final = "breaker"
_PLACES: Final = "places"


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedNode:
    """Stored state of one node, beside what Slurm knows."""

    record: NodeRecord
    machine: str
    """ID of the machine behind the node, as its agent last reported it."""

    slurmd: str = ""
    """``NodeFacts.slurmd`` when the current repair began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedJob:
    """Stored state of one job, beside what Slurm knows."""

    record: JobRecord
    user: str
    """Owner of the job; a different owner means that Slurm has reused its number."""

    restarts: int
    """``BatchJob.restarts`` of the run that the current attempt belongs to."""

    machines: Mapping[str, str]
    """``NodeFacts.slurmd`` of the nodes of the current or last attempt while it ran."""

    nodes: int = 1
    max_retries: int = 0
    notes: tuple[str, ...] = ()
    """Notes that were sent to the owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Paths of the controller, for commands on the same host."""

    report_dir: str
    conf: str
    """Path of slurm.conf; empty for the default of Slurm's commands."""


@dataclass(slots=True, kw_only=True)
class Memory:
    """All state that each round needs, as in the file; the store keeps it current."""

    nodes: dict[str, RememberedNode] = field(default_factory=dict)
    jobs: dict[str, RememberedJob] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    holds: dict[str, str] = field(default_factory=dict)
    breaker: Breaker = field(default_factory=Breaker)
    offenders: frozenset[str] = frozenset()
    unreadable: frozenset[str] = frozenset()
    """Nodes whose entry is damaged."""

    unreadable_jobs: frozenset[str] = frozenset()
    """Jobs whose entry is damaged; they are not managed."""


class SlurmStore:
    """Reads and writes one ``state.db``; also an ``IncidentStore``. For one thread.

    Every method raises ``BackendError`` if the file cannot be used, ``StorageFull`` if its disk is
    full. Each call is one transaction, on disk when it returns; other processes can read meanwhile.
    """

    def __init__(self, path: Path | None) -> None:
        """Open or create the file at ``path``; None keeps the state in memory only."""
        self._path = path or Path(":memory:")
        self._memory = Memory()
        self._seen = -1
        self._changes: PromptBackup | None = None
        with errors_named(self._path, _RESTART):
            if path is not None:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                create_private(path)
            self._db = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            with ExitStack() as failed:
                failed.callback(self._db.close)
                self._write_ahead()
                self._db.execute("PRAGMA synchronous = FULL")
                self._set_up()
                failed.pop_all()

    def _write_ahead(self) -> None:
        """Enable WAL, so that others can read during writes; does not wait for current users."""
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() > deadline:
                    raise
                time.sleep(_BUSY_PAUSE_S)
            else:
                return

    def _set_up(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")  # two controllers may start at the same time
        version: int = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {_VERSION}")
        self._db.execute("COMMIT")
        if version not in (0, _VERSION):
            raise BackendError(other_layout(self._path, version, _VERSION))

    def keep_backup(self) -> None:
        """Back the file up after changes from now on; for its owner, after ``recover_state``."""
        self._changes = PromptBackup(self._path)

    @property
    def log(self) -> Path:
        """Return the path of the WAL file, which grows with each write."""
        return self._path.with_name(f"{self._path.name}-wal")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def read(self) -> Memory:
        """Return all stored state. Cheap while no other process has written."""
        with errors_named(self._path, _RESTART):
            seen: int = self._db.execute("PRAGMA data_version").fetchone()[0]
            if seen != self._seen:
                self._memory = self._load_all()
                self._seen = seen
        if self._changes is not None:
            self._changes((seen, self._db.total_changes))
        return self._memory

    def put_node(self, name: str, remembered: RememberedNode) -> None:
        """Store the state of a node."""
        self._put("nodes", name, _dump(remembered))
        self._memory.nodes[name] = remembered

    def forget_node(self, name: str) -> None:
        """Delete a node, its request and its hold."""
        for table, known in (
            ("requests", self._memory.requests),
            ("holds", self._memory.holds),
            ("nodes", self._memory.nodes),
        ):
            self._delete(table, name)
            known.pop(name, None)

    def put_job(self, job: str, remembered: RememberedJob) -> None:
        """Store the state of a job."""
        self._put("jobs", job, _dump(remembered))
        self._memory.jobs[job] = remembered

    def forget_job(self, job: str) -> None:
        """Delete a job."""
        self._delete("jobs", job)
        self._memory.jobs.pop(job, None)

    def put_request(self, node: str, request: Request) -> None:
        """Store a request for a node, in place of a pending one."""
        self._put("requests", node, _dump(request))
        self._memory.requests[node] = request

    def clear_request(self, node: str, request_id: str) -> None:
        """Delete a request, unless a later one has replaced it."""
        statement = "DELETE FROM requests WHERE name = ? AND json_extract(body, '$.id') = ?"
        self._write(statement, node, request_id)
        known = self._memory.requests.get(node)
        if known is not None and known.id == request_id:
            del self._memory.requests[node]

    def hold(self, node: str, why: str) -> None:
        """Pause repairs on a node; an empty reason resumes them."""
        self._delete("holds", node)
        self._memory.holds.pop(node, None)
        if why:
            self._put("holds", node, json.dumps(why))
            self._memory.holds[node] = why

    def put_breaker(self, breaker: Breaker) -> None:
        """Store the state of the circuit breaker."""
        self._put("facts", _BREAKER, _dump(breaker))
        self._memory.breaker = breaker

    def add_offender(self, provider_id: str) -> None:
        """Store a machine that must not be taken back."""
        self._put("offenders", provider_id, "true")
        self._memory.offenders |= {provider_id}

    def put_places(self, places: Places) -> None:
        """Store the paths of the controller."""
        self._put("facts", _PLACES, _dump(places))

    def places(self) -> Places:
        """Return the paths of the controller that was started last."""
        rows = self._read("SELECT body FROM facts WHERE name = ?", _PLACES)
        if not rows:
            raise BackendError(f"{self._path}: no controller has used it yet")
        return self._load(Places, rows[0][0])

    # Incidents

    def get(self, incident_id: str) -> Incident | None:
        """See ``IncidentStore.get``."""
        rows = self._read("SELECT body FROM incidents WHERE name = ?", incident_id)
        return self._load(Incident, rows[0][0]) if rows else None

    def put(self, incident: Incident) -> None:
        """See ``IncidentStore.put``."""
        self._put("incidents", incident.id, _dump(incident))

    def delete(self, incident_id: str) -> None:
        """See ``IncidentStore.delete``."""
        self._delete("incidents", incident_id)

    def list_incidents(self) -> tuple[Incident, ...]:
        """See ``IncidentStore.list_incidents``."""
        rows = self._read("SELECT body FROM incidents ORDER BY number")
        return tuple(self._load(Incident, body) for (body,) in rows)

    def _load_all(self) -> Memory:
        found = Memory()
        unreadable = set()
        for name, body in self._read("SELECT name, body FROM nodes"):
            try:
                found.nodes[name] = from_plain(RememberedNode, json.loads(body))
            except ValueError:
                unreadable.add(name)
        found.unreadable = frozenset(unreadable)
        damaged = set()
        for name, body in self._read("SELECT name, body FROM jobs"):
            try:
                found.jobs[name] = from_plain(RememberedJob, json.loads(body))
            except ValueError:
                damaged.add(name)
        found.unreadable_jobs = frozenset(damaged)
        for name, body in self._read("SELECT name, body FROM requests"):
            found.requests[name] = self._load(Request, body)
        for name, body in self._read("SELECT name, body FROM holds"):
            found.holds[name] = self._load(str, body)
        for (body,) in self._read("SELECT body FROM facts WHERE name = ?", _BREAKER):
            found.breaker = self._load(Breaker, body)
        found.offenders = frozenset(name for (name,) in self._read("SELECT name FROM offenders"))
        return found

    def _put(self, table: str, name: str, body: str) -> None:
        self._write(
            f"INSERT INTO {table} (name, body) VALUES (?, ?)"  # noqa: S608 - a name of ours
            " ON CONFLICT (name) DO UPDATE SET body = excluded.body",
            name, body,
        )  # fmt: skip

    def _delete(self, table: str, name: str) -> None:
        self._write(f"DELETE FROM {table} WHERE name = ?", name)  # noqa: S608 - a name of ours

    def _read(self, statement: str, *values: object) -> list[Any]:
        with errors_named(self._path, _RESTART):
            return self._db.execute(statement, values).fetchall()

    def _write(self, statement: str, *values: object) -> None:
        with errors_named(self._path, _RESTART):
            self._db.execute(statement, values)

    def _load(self, kind: type[T], text: str) -> T:
        with errors_named(self._path, _RESTART):
            return from_plain(kind, json.loads(text))


def recover_state(path: Path) -> str:
    """Check the file before its owner opens it, back it up, or restore a damaged one.

    Without a valid backup, the state begins empty: Slurm itself keeps nodes closed.

    Returns:
        What was restored, for a person; empty if the file is sound.

    Raises:
        BackendError: the file cannot be checked or restored.

    """
    with errors_named(path):
        return recover(path, may_begin_empty=True)


def _dump(value: object) -> str:
    return json.dumps(to_plain(value))
