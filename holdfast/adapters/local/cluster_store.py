"""The state of a cluster that is there without its job: what is wanted of it, besides."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from holdfast.adapters.local.store import LocalStore, RunRecord
from holdfast.kit.serial import from_plain, to_plain
from holdfast.model.clusters import MachineGroup
from holdfast.model.errors import BackendError
from holdfast.model.jobs import JobRecord, JobSpec
from holdfast.model.nodes import NodeRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGroup:
    """An instance group of machines on this one."""

    made_of: MachineGroup
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMember:
    """A node of such a group."""

    name: str
    provider_id: str
    replaces: str
    group: str
    launched_at: datetime
    record: NodeRecord
    is_leaving: bool
    """Whether it is to go, or another one takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLaunch:
    """What a job that was handed to a cluster is launched with."""

    argv: tuple[str, ...]
    nproc_per_node: int
    checkpoint_dir: str
    directory: str
    """Where its ranks begin."""

    environment: Mapping[str, str]
    master_port: int | None = None
    hang_timeout_s: float | None = None


class JobGoesOn(BackendError):
    """A cluster on this machine runs one job at a time."""


class ClusterStore(LocalStore):
    """``LocalStore`` with instance groups, and with jobs that come one after the other."""

    def groups(self) -> dict[str, LocalGroup]:
        """``name -> group``."""
        rows = self._read("SELECT name, count, body FROM groups ORDER BY name")
        return {
            name: LocalGroup(made_of=_load(MachineGroup, body), count=count)
            for name, count, body in rows
        }

    def put_group(self, group: MachineGroup) -> None:
        """Have a group; one that is there keeps its count."""
        self._write(
            "INSERT INTO groups VALUES (?, 0, ?) ON CONFLICT (name) DO UPDATE SET "
            "body = excluded.body",
            group.name, json.dumps(to_plain(group)),
        )  # fmt: skip

    def scale(self, group: str, count: int) -> None:
        """Set the count of a group; where there are more nodes, the youngest go."""
        with self._transaction():
            self._write("UPDATE groups SET count = ? WHERE name = ?", count, group)
            self._write(
                "INSERT INTO leaving SELECT name FROM nodes WHERE instance_group = ?1 "
                "AND replaces NOT IN (SELECT name FROM nodes) "
                "AND name NOT IN (SELECT node FROM leaving) "
                "ORDER BY launched_at, name LIMIT -1 OFFSET ?2",
                group, count,
            )  # fmt: skip

    def leaving(self) -> frozenset[str]:
        """The nodes that are to go."""
        return frozenset(row[0] for row in self._read("SELECT node FROM leaving"))

    def remove_nodes(self, group: str, nodes: Sequence[str], along: Sequence[str] = ()) -> None:
        """Have nodes go; the count of their group falls by one for each that was to stay.

        Those of ``along`` go with them: one of the others was to take over from each.
        """
        with self._transaction():
            for node in along:
                self._write("INSERT OR IGNORE INTO leaving VALUES (?)", node)
            for node in nodes:
                if self._read("SELECT 1 FROM leaving WHERE node = ?", node):
                    continue
                self._write("INSERT INTO leaving VALUES (?)", node)
                self._write("UPDATE groups SET count = max(0, count - 1) WHERE name = ?", group)

    def members(self) -> tuple[LocalMember, ...]:
        """All nodes, as they were at one moment."""
        rows = self._read(
            "SELECT name, provider_id, replaces, instance_group, launched_at, record, "
            "name IN (SELECT node FROM leaving) FROM nodes ORDER BY name"
        )
        there = {row[0] for row in rows}
        replaced = {row[2] for row in rows} & there
        return tuple(
            LocalMember(
                name=name,
                provider_id=machine,
                replaces=old,
                group=group,
                launched_at=datetime.fromisoformat(launched_at),
                record=_load(NodeRecord, record),
                is_leaving=bool(is_leaving) or name in replaced,
            )
            for name, machine, old, group, launched_at, record, is_leaving in rows
        )

    def remove_group(self, group: str) -> None:
        """Have a group go with all its nodes."""
        with self._transaction():
            self._write(
                "INSERT OR IGNORE INTO leaving SELECT name FROM nodes WHERE instance_group = ?",
                group,
            )
            self._write("DELETE FROM groups WHERE name = ?", group)

    def submit(
        self,
        spec: JobSpec,
        record: JobRecord,
        launch: JobLaunch,
        described: RunRecord,
        put_by: Callable[[], None],
    ) -> None:
        """Hand a job over; what is known of the one before is forgotten.

        Args:
            spec: of the job.
            record: of the job.
            launch: what it is launched with.
            described: for people.
            put_by: puts the files of the one before out of the way, while no other can begin.

        Raises:
            JobGoesOn: the one before has not ended.

        """
        with self._transaction():
            for name, (_, before, _) in self.jobs().items():
                if not before.phase.is_final:
                    raise JobGoesOn(f"the job {name} goes on: it is {before.phase}")
            put_by()
            self._write("DELETE FROM jobs")
            self._write("DELETE FROM launches")
            self.add_job(spec, record)
            self._write(
                "INSERT INTO launches VALUES (?, ?)", spec.name, json.dumps(to_plain(launch))
            )
            self.describe_run(described)

    def job_launch(self, job: str) -> JobLaunch:
        """What a job that was handed over is launched with."""
        [(body,)] = self._read("SELECT body FROM launches WHERE job = ?", job)
        return _load(JobLaunch, body)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._write("BEGIN IMMEDIATE")
        with ExitStack() as undo:
            undo.callback(self._write, "ROLLBACK")
            yield
            undo.pop_all()
        self._write("COMMIT")


def _load(kind: type[T], text: str) -> T:
    return from_plain(kind, json.loads(text))
