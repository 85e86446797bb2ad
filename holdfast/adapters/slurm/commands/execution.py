"""Slurm's commands, run with a time limit."""

import getpass
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Final

from holdfast.adapters.slurm.commands.node_text import (
    JOBS_FORMAT,
    SHOW_NODES,
    JobFacts,
    NodeFacts,
    parse_jobs,
    parse_nodes,
)
from holdfast.kit.commands import Outcome, run
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
"""Characters of a command line that are told; formats and lists of nodes are longer."""

_BATCH: Final = 200
"""Nodes in one command line."""


class Slurm:
    """One cluster. Every method raises ``BackendError`` if slurmctld cannot be asked."""

    def __init__(self, conf: Path | None, timeout: timedelta) -> None:
        """Use the cluster of ``conf``, or that of the surroundings.

        Args:
            conf: a ``slurm.conf``.
            timeout: of one command. Slurm's own try ends after 4 s, ten at most.

        """
        self._environment = {**os.environ, **({"SLURM_CONF": str(conf)} if conf else {})}
        self._timeout = timeout

    def nodes(self, *names: str) -> dict[str, NodeFacts]:
        """Nodes by name; all if none is named."""
        text = self._call(*SHOW_NODES, *([",".join(names)] if names else []))
        try:
            return parse_nodes(text)
        except ValueError as error:
            raise BackendError(f"the nodes cannot be read: {error}") from error

    def jobs_on(self, nodes: Iterable[str]) -> list[JobFacts]:
        """The jobs that hold some of these nodes, those that are just ending among them."""
        names, found = sorted(nodes), []
        for at in range(0, len(names), _BATCH):
            found += self._jobs("-w", ",".join(names[at : at + _BATCH]))
        return found

    def jobs(self) -> list[JobFacts]:
        """The jobs that hold nodes, those that are just ending among them."""
        return [job for job in self._jobs() if job.nodes]

    def _jobs(self, *options: str) -> list[JobFacts]:
        text = self._call("squeue", "-h", *options, "-o", JOBS_FORMAT)
        try:
            return parse_jobs(text)
        except ValueError as error:
            raise BackendError(f"the jobs cannot be read: {error}") from error

    def close_node(self, node: str, reason: str) -> None:
        """Keep a node from jobs; those on it run on."""
        self._call("scontrol", "update", f"nodename={node}", "state=fail", f"reason={reason}")

    def open_node(self, node: str) -> None:
        """Give a node to jobs; one that is given to them already stays as it is.

        Since 24.11 a reason outlives its state, and Slurm's next one would be added to it.
        """
        argv = ("scontrol", "update", f"nodename={node}", "state=resume", "reason= ")
        self._try(argv, _IS_SO_ALREADY)

    def down_node(self, node: str, reason: str) -> None:
        """Take a node down, with all that Slurm believes to be on it."""
        self._call("scontrol", "update", f"nodename={node}", "state=down", f"reason={reason}")

    def drain_node(self, node: str, reason: str) -> None:
        """Keep a node from jobs until a person resumes it."""
        self._call("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def requeue(self, job: str) -> bool:
        """End a job and let it wait for nodes again; whether Slurm does that with such a job."""
        return self._try(("scontrol", "requeue", job), _CANNOT_BE_REQUEUED)

    def _call(self, *argv: str, variables: Mapping[str, str] = MappingProxyType({})) -> str:
        environment = {**self._environment, **variables}
        done = run(argv, timeout=self._timeout, environment=environment)
        if done.status:
            raise BackendError(_complaint(argv, done))
        return done.output

    def _try(self, argv: Sequence[str], but: Sequence[str]) -> bool:
        """Whether a command was carried out; one of the answers in ``but`` is no error."""
        done = run(argv, timeout=self._timeout, environment=self._environment)
        if done.status and not any(one in done.errors for one in but):
            raise BackendError(_complaint(argv, done))
        return not done.status


def _complaint(argv: Sequence[str], done: Outcome) -> str:
    said = " ".join(done.errors.split()) or f"it ended with {done.status}"
    what = " ".join(argv)
    what = what if len(what) <= _SHOWN else f"{what[:_SHOWN]}..."
    if any(one in said for one in _DENIED):
        return f"{what}: {said}: {_person()} may not do that; {_GRANT}"
    return f"{what}: {said}"


def _person() -> str:
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return f"uid {os.getuid()}"
