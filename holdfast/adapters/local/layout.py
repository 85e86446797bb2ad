"""Files and directories of a run.

::

    <home>/locks/<name>          locked while the run is active
    <home>/locks/clusters/<name> locked while a process manages the cluster
    <home>/runs/<name>/          one run: a cluster and its job
        state.db                 nodes, job, incidents, requests, events
        wake                     touched by other commands to wake the run
        checkpoints/             default of $HOLDFAST_CHECKPOINT_DIR
        logs/attempt-1/rank-0.log
        progress/attempt-1       $HOLDFAST_PROGRESS_FILE
        evidence/attempt-1.json  what its ranks did when it hung
        checkpoint-watch.log     output of the background verification of checkpoints
        checkpoint-mirror.log    output of the copies of checkpoints to a second location
        nodes/<node>/            one machine
            boot_id              another with every boot
            dev/kmsg             kernel records of this boot
            var/log/messages     syslog lines of all boots
            agent/               report.json and heartbeat of the node's agent
            processes.json       who runs on it
        retired/<node>/          what is left of a machine that was replaced
    <home>/clusters/<name>/      the same for a cluster, which outlives its jobs
        jobs/<id>/               one job: checkpoints/, logs/ and progress/ as above
    <home>/deleted/<name>-<uid>/ a cluster that was deleted, until it is pruned
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.kit.files import storage_error

_CLUSTERS: Final = "clusters"
_DELETED: Final = "deleted"


def default_home() -> Path:
    """Return ``$HOLDFAST_HOME``, else ``holdfast`` in the XDG state directory.

    The path is absolute: jobs get paths below it, and may change their working directory.
    """
    if home := os.environ.get("HOLDFAST_HOME"):
        return Path(home).absolute()
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser().absolute() / "holdfast"


@dataclass(frozen=True, slots=True)
class NodeDir:
    """The directory of one local machine."""

    path: Path

    @property
    def boot_id(self) -> Path:
        return self.path / "boot_id"

    @property
    def kmsg(self) -> Path:
        return self.path / "dev" / "kmsg"

    @property
    def messages(self) -> Path:
        return self.path / "var" / "log" / "messages"

    @property
    def agent(self) -> Path:
        return self.path / "agent"

    @property
    def report(self) -> Path:
        return self.agent / "report.json"

    @property
    def heartbeat(self) -> Path:
        return self.agent / "heartbeat"

    @property
    def processes(self) -> Path:
        return self.path / "processes.json"

    @property
    def console(self) -> Path:
        return self.path / "console.log"

    def create(self) -> None:
        """Create the directory of a new machine.

        Raises:
            BackendError: it cannot be written; ``StorageFull`` if no space is left.

        """
        try:
            for directory in (self.kmsg.parent, self.messages.parent, self.agent):
                directory.mkdir(parents=True, exist_ok=True)
            self.messages.touch()
        except OSError as error:
            raise storage_error(error, self.path) from error


@dataclass(frozen=True, slots=True)
class RunDir:
    """The directory of one run."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def lock(self) -> Path:
        """Return the lock file; a run and a cluster of the same name have different ones."""
        locks = self.path.parent.parent / "locks"
        return (locks / "clusters" if self.is_cluster else locks) / self.path.name

    @property
    def state(self) -> Path:
        return self.path / "state.db"

    @property
    def wake(self) -> Path:
        return self.path / "wake"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def watch_log(self) -> Path:
        return self.path / "checkpoint-watch.log"

    @property
    def mirror_log(self) -> Path:
        return self.path / "checkpoint-mirror.log"

    @property
    def nodes(self) -> Path:
        return self.path / "nodes"

    @property
    def retired(self) -> Path:
        return self.path / "retired"

    def node(self, name: str) -> NodeDir:
        return NodeDir(self.nodes / name)

    def log(self, attempt: int, rank: int) -> Path:
        return self.path / "logs" / f"attempt-{attempt}" / f"rank-{rank}.log"

    def progress(self, attempt: int) -> Path:
        return self.path / "progress" / f"attempt-{attempt}"

    def step_rate(self, attempt: int) -> Path:
        return self.path / "progress" / f"attempt-{attempt}.rate"

    def stragglers(self, attempt: int) -> Path:
        return self.path / "progress" / f"attempt-{attempt}.stragglers"

    def sections(self, attempt: int) -> Path:
        return self.path / "progress" / f"attempt-{attempt}.sections"

    def flight_dumps(self, attempt: int) -> Path:
        return self.path / "evidence" / f"attempt-{attempt}.collectives"

    def evidence(self, attempt: int) -> Path:
        return self.path / "evidence" / f"attempt-{attempt}.json"

    @property
    def is_cluster(self) -> bool:
        """Whether it is the directory of a cluster, which outlives its jobs."""
        return self.path.parent.name in (_CLUSTERS, _DELETED)

    @property
    def is_deleted(self) -> bool:
        """Whether it is the directory of a deleted cluster."""
        return self.path.parent.name == _DELETED

    def moved_from(self, earlier: "RunDir", path: Path) -> Path:
        """Return the current place of a path below an earlier place of this directory.

        Other paths are unchanged. A run moves when a later one takes its name, a cluster when it is
        deleted.
        """
        if not path.is_relative_to(earlier.path):
            return path
        return self.path / path.relative_to(earlier.path)

    def of_job(self, job: str) -> "RunDir":
        """Return the directory of the logs, progress and checkpoints of a job.

        The job of a plain run uses the directory of its run.

        Args:
            job: ``JobSpec.name``.

        """
        path = self.path / "jobs" / job
        return RunDir(path) if path.is_dir() else self

    def create(self) -> None:
        """Create the directories of a new run."""
        for directory in (self.nodes, self.retired, self.path / "progress"):
            directory.mkdir(parents=True, exist_ok=True)
        self.wake.touch()


def run_dir(home: Path, name: str) -> RunDir:
    """Return the directory of the last run of a name."""
    return RunDir(home / "runs" / name)


def cluster_dir(home: Path, name: str) -> RunDir:
    """Return the directory of a cluster."""
    return RunDir(home / _CLUSTERS / name)


def deleted_dir(home: Path, name: str, uid: str) -> RunDir:
    """Return the directory of a deleted cluster."""
    return RunDir(home / _DELETED / (f"{name}-{uid}" if uid else name))


def runs(home: Path, *, deleted: bool = False) -> Iterator[RunDir]:
    """Yield runs under ``home`` that have a state, by name; then clusters; then deleted ones."""
    for root in ("runs", _CLUSTERS, *([_DELETED] if deleted else ())):
        yield from _with_state(home / root)


def _with_state(root: Path) -> Iterator[RunDir]:
    if root.is_dir():
        for path in sorted(root.iterdir()):
            if (path / "state.db").is_file():
                yield RunDir(path)
