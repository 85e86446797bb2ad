"""State of a cluster that outlives its jobs: identity, instance groups, and jobs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from holdfast.adapters.local.store import LocalStore, Submission
from holdfast.decisions.log_rules import JobLogRule
from holdfast.kit.serial import to_plain
from holdfast.model.clusters import MachineGroup
from holdfast.model.errors import BackendError
from holdfast.model.jobs import JobRecord, JobSpec
from holdfast.model.nodes import NodeRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGroup:
    """An instance group of local machines."""

    made_of: MachineGroup
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMember:
    """A node of an instance group."""

    name: str
    provider_id: str
    replaces: str
    group: str
    launched_at: datetime
    record: NodeRecord
    is_leaving: bool
    """Whether it is being removed, or another node replaces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLaunch:
    """Launch settings of a job that was submitted to a cluster."""

    argv: tuple[str, ...]
    nproc_per_node: int
    checkpoint_dir: str
    directory: str
    """Working directory of its ranks."""

    environment: Mapping[str, str]
    master_port: int | None = None
    hang_timeout_s: float | None = None
    startup_timeout_s: float | None = None
    log_rules: tuple[JobLogRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Number of nodes of a cluster that active jobs use."""

    total: int
    """Sum of the counts of all groups."""

    jobs: Mapping[str, int]
    """``JobSpec.name`` of each active job ``->`` number of nodes that it needs."""

    @property
    def free(self) -> int:
        """Return the number of nodes left for another job."""
        return self.total - sum(self.jobs.values())


class TooFewNodes(BackendError):
    """Active jobs leave too few nodes of a cluster for another job."""

    def __init__(self, occupancy: Occupancy) -> None:
        super().__init__(f"{occupancy.free} of {occupancy.total} nodes are free")
        self.occupancy = occupancy


class CheckpointsInUse(BackendError):
    """An active job, named in the message, uses the checkpoint directory."""


class ClusterStore(LocalStore):
    """A ``LocalStore`` with an identity, instance groups, and jobs that share the nodes."""

    def put_uid(self, uid: str) -> None:
        """Store the unique ID of the cluster, once."""
        self._write("INSERT INTO cluster SELECT ? WHERE NOT EXISTS (SELECT 1 FROM cluster)", uid)

    def groups(self) -> dict[str, LocalGroup]:
        """Return ``name -> group``."""
        rows = self._read("SELECT name, count, body FROM groups ORDER BY name")
        return {
            name: LocalGroup(made_of=self._load(MachineGroup, body), count=count)
            for name, count, body in rows
        }

    def put_group(self, group: MachineGroup) -> None:
        """Create or update a group; an existing one keeps its count."""
        self._write(
            "INSERT INTO groups VALUES (?, 0, ?) ON CONFLICT (name) DO UPDATE SET "
            "body = excluded.body",
            group.name, json.dumps(to_plain(group)),
        )  # fmt: skip

    def scale(self, group: str, count: int) -> None:
        """Set the count of a group; if there are more nodes, the youngest are removed."""
        with self._transaction():
            self._write("UPDATE groups SET count = ? WHERE name = ?", count, group)
            self._write(
                "INSERT INTO leaving SELECT name FROM nodes WHERE instance_group = ? "
                "AND replaces NOT IN (SELECT name FROM nodes) "
                "AND name NOT IN (SELECT node FROM leaving) "
                "ORDER BY launched_at, name LIMIT -1 OFFSET ?",
                group, count,
            )  # fmt: skip

    def remove_nodes(self, group: str, nodes: Sequence[str], along: Sequence[str] = ()) -> None:
        """Remove nodes; the count of their group falls by one for each that was not leaving yet.

        Nodes in ``along`` are removed with them: each was to be replaced by one of the others.
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
        """Return all nodes, from a single transaction."""
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
                record=self._load(NodeRecord, record),
                is_leaving=bool(is_leaving) or name in replaced,
            )
            for name, machine, old, group, launched_at, record, is_leaving in rows
        )

    def remove_group(self, group: str) -> None:
        """Remove a group with all its nodes."""
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
        submission: Submission,
        *,
        resumes: bool = False,
    ) -> None:
        """Submit a job; earlier jobs are unchanged.

        Args:
            spec: of the job; its name is the ID of the job.
            record: of the job.
            launch: launch settings of its ranks.
            submission: ID, name and process for people.
            resumes: whether its checkpoint directory is that of an earlier job.

        Raises:
            CheckpointsInUse: it is, and an active job uses the directory.
            TooFewNodes: other active jobs leave fewer nodes than the job needs.
            BackendError: the cluster is being deleted.

        """
        with self._transaction():
            if not self.groups():
                raise BackendError("the cluster is being deleted, or its creation has failed")
            user = self._user_of(submission.checkpoint_dir) if resumes else ""
            if user:
                raise CheckpointsInUse(user)
            occupancy = self.occupancy()
            if occupancy.jobs and spec.nodes > occupancy.free:
                raise TooFewNodes(occupancy)
            self.add_job(spec, record, submission)
            self._write(
                "INSERT INTO launches VALUES (?, ?)", spec.name, json.dumps(to_plain(launch))
            )

    def _user_of(self, checkpoint_dir: str) -> str:
        """Return ``JobSpec.name`` of an active job with that checkpoint directory, else empty."""
        known, active = self.submissions(), self.active_jobs()
        using = (one for one in active if known[one].checkpoint_dir == checkpoint_dir)
        return next(using, "")

    def occupancy(self) -> Occupancy:
        """Return the number of nodes that active jobs use."""
        active = {name: spec.nodes for name, (spec, _, _) in self.active_jobs().items()}
        return Occupancy(total=sum(one.count for one in self.groups().values()), jobs=active)

    def job_launch(self, job: str) -> JobLaunch:
        """Return the launch settings of a submitted job."""
        [(body,)] = self._read("SELECT body FROM launches WHERE job = ?", job)
        return self._load(JobLaunch, body)
