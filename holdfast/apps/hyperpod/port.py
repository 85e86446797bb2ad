"""Interface between HyperPod's commands and a cluster."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from holdfast.apps.hyperpod.job_request import JobRequest

Json = dict[str, Any]

EXEC_TIME: Final = timedelta(minutes=5)
"""Timeout of a command in a pod."""


@dataclass(frozen=True, slots=True)
class JobOutput:
    """Output of a command, and its error."""

    text: str
    error: str
    """Exit status and standard error; empty if it exited with code 0."""


class HyperPodCluster(Protocol):
    """Jobs of a cluster, in the format of HyperPod's commands.

    Every method may raise ``BackendError``, and ``NotFound`` for an unknown job or pod.
    """

    @property
    def defaults(self) -> Mapping[str, str]:
        """Fields of a ``JobRequest`` that are optional on this cluster."""
        ...

    def preview(self, request: JobRequest) -> Json:
        """Return what ``submit`` would create."""
        ...

    def submit(self, request: JobRequest) -> str:
        """Start a job; returns a message that names where it runs.

        Raises:
            ConfigError: the job cannot be started, or its name is in use.

        """
        ...

    def jobs(self, selector: str, *, everywhere: bool) -> list[Json]:
        """Return the jobs that match a label selector, oldest first."""
        ...

    def job(self, name: str, *, verbose: bool) -> Json:
        """Return one job."""
        ...

    def pods(self, name: str) -> list[Json]:
        """Return the pods of a job, sorted by name."""
        ...

    def log(self, name: str, pod: str) -> Iterator[bytes]:
        """Yield the log of a pod so far, in chunks."""
        ...

    def run(self, name: str, pod: str, command: Sequence[str]) -> JobOutput:
        """Run a command in a pod of a job, and wait for its end."""
        ...

    def cancel(self, name: str) -> None:
        """Cancel a job."""
        ...

    def suspend(self, name: str, *, is_suspended: bool) -> None:
        """Suspend or resume a job."""
        ...

    def clusters(self) -> list[Json]:
        """Return the capacity by cluster and instance type."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...
