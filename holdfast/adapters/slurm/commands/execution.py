"""Runs Slurm commands with a timeout."""

import getpass
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Final

from holdfast.adapters.slurm.commands.conf_file import CONF
from holdfast.adapters.slurm.commands.node_text import (
    JOBS_FORMAT,
    SHOW_NODES,
    JobFacts,
    NodeFacts,
    parse_jobs,
    parse_nodes,
)
from holdfast.kit.commands import CompletedCommand, run
from holdfast.model.errors import BackendError

_DENIED: Final = ("Invalid user id", "ermission denied", "Access denied")
_GRANT: Final = (
    "run the controller as SlurmUser or root, or grant it: sacctmgr modify user NAME set"
    " adminlevel=operator"
)
_IS_SO_ALREADY: Final = ("Invalid node state specified",)
_CANNOT_BE_REQUEUED: Final = (
    "Only batch jobs",
    "Requested operation is presently disabled",
    "Invalid job id",
    "Job is pending execution",
    "already completing or completed",
)

_SHOWN: Final = 80
"""Maximum characters of a command line in messages; formats and lists of nodes are longer."""

_UNCONFIGURED: Final = "Could not establish a configuration source"

_CONFIGURE: Final = f"run this on a node of the cluster, or set {CONF} to its slurm.conf"

_BATCH: Final = 200
"""Maximum number of nodes in one command line."""


class Slurm:
    """Commands on one cluster; methods raise ``BackendError`` if slurmctld does not respond."""

    def __init__(self, conf: Path | None, timeout: timedelta) -> None:
        """Use the cluster of ``conf``, or that of the environment.

        Args:
            conf: a ``slurm.conf``.
            timeout: timeout of one command. Slurm's commands give up after 4 s, at most 10 s.

        """
        self._environment = {**os.environ, **({"SLURM_CONF": str(conf)} if conf else {})}
        self._timeout = timeout

    def nodes(self, *names: str) -> dict[str, NodeFacts]:
        """Return nodes by name; all nodes if none is given."""
        text = self._call(*SHOW_NODES, *([",".join(names)] if names else []))
        try:
            return parse_nodes(text)
        except ValueError as error:
            raise BackendError(f"the nodes cannot be read: {error}") from error

    def jobs_on(self, nodes: Iterable[str]) -> list[JobFacts]:
        """Return the jobs, including completing ones, that hold any of the nodes."""
        names, found = sorted(nodes), []
        for at in range(0, len(names), _BATCH):
            found += self._jobs("-w", ",".join(names[at : at + _BATCH]))
        return found

    def jobs(self) -> list[JobFacts]:
        """Return the jobs, including completing ones, that hold nodes."""
        return [job for job in self._jobs() if job.nodes]

    def _jobs(self, *options: str) -> list[JobFacts]:
        text = self._call("squeue", "-h", *options, "-o", JOBS_FORMAT)
        try:
            return parse_jobs(text)
        except ValueError as error:
            raise BackendError(f"the jobs cannot be read: {error}") from error

    def close_node(self, node: str, reason: str) -> None:
        """Set a node to FAIL, so that it gets no jobs; jobs on it keep running."""
        self._call("scontrol", "update", f"nodename={node}", "state=fail", f"reason={reason}")

    def open_node(self, node: str) -> None:
        """Resume a node; no effect on one that is open.

        Since 24.11 a reason outlives its state, and Slurm would append its next reason to it.
        """
        argv = ("scontrol", "update", f"nodename={node}", "state=resume", "reason= ")
        self._try(argv, _IS_SO_ALREADY)

    def down_node(self, node: str, reason: str) -> None:
        """Set a node to DOWN, which ends all jobs that Slurm believes to be on it."""
        self._call("scontrol", "update", f"nodename={node}", "state=down", f"reason={reason}")

    def drain_node(self, node: str, reason: str) -> None:
        """Drain a node until a person resumes it."""
        self._call("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def requeue(self, job: str) -> bool:
        """Requeue a job. Returns False if Slurm does not requeue such jobs."""
        return self._try(("scontrol", "requeue", job), _CANNOT_BE_REQUEUED)

    def _call(self, *argv: str, variables: Mapping[str, str] = MappingProxyType({})) -> str:
        done = self._run(argv, {**self._environment, **variables})
        if done.status:
            raise BackendError(_error_message(argv, done))
        return done.output

    def _try(self, argv: Sequence[str], but: Sequence[str]) -> bool:
        """Run a command; return whether it succeeded. The errors in ``but`` are not raised."""
        done = self._run(argv, self._environment)
        if done.status and not any(one in done.errors for one in but):
            raise BackendError(_error_message(argv, done))
        return not done.status

    def _run(self, argv: Sequence[str], environment: Mapping[str, str]) -> CompletedCommand:
        conf = environment.get(CONF)
        if conf and not os.access(conf, os.R_OK):  # Slurm's commands would try for longer than that
            raise BackendError(f"{CONF} is {conf!r}, which cannot be read: {_CONFIGURE}")
        try:
            return run(argv, timeout=self._timeout, environment=environment)
        except BackendError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            text = "install Slurm's commands, or run this on a node of the cluster"
            raise BackendError(f"{argv[0]} is not installed: {text}") from error


def _error_message(argv: Sequence[str], done: CompletedCommand) -> str:
    message = " ".join(done.errors.split()) or f"exited with {done.status}"
    what = " ".join(argv)
    what = what if len(what) <= _SHOWN else f"{what[:_SHOWN]}..."
    if _UNCONFIGURED in message:
        return f"{what}: no slurm.conf was found: {_CONFIGURE}"
    if any(one in message for one in _DENIED):
        return f"{what}: {message}: {_person()} is not permitted; {_GRANT}"
    return f"{what}: {message}"


def _person() -> str:
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return f"uid {os.getuid()}"
