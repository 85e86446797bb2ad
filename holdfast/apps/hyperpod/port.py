"""What HyperPod's commands need of a cluster, wherever its jobs run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from holdfast.apps.hyperpod.job_request import JobRequest

Json = dict[str, Any]

EXEC_TIME: Final = timedelta(minutes=5)
"""For so long a command may run in a pod."""


@dataclass(frozen=True, slots=True)
class JobOutput:
    """What a command has said, and why there is no more of it."""

    text: str
    error: str
    """With what it said on standard error; empty if it exited with code 0."""


class HyperPodCluster(Protocol):
    """The jobs of a cluster, as HyperPod's commands print them.

    Every method may raise ``BackendError``, and ``NotFound`` for what is not there.
    """

    @property
    def defaults(self) -> Mapping[str, str]:
        """Fields of a ``JobRequest`` that a person need not give here."""
        ...

    def preview(self, request: JobRequest) -> Json:
        """What ``submit`` would create."""
        ...

    def submit(self, request: JobRequest) -> str:
        """Start a job; tells where it went.

        Raises:
            ConfigError: it cannot be started, or one of its name is there.

        """
        ...

    def jobs(self, selector: str, *, everywhere: bool) -> list[Json]:
        """All jobs, oldest first."""
        ...

    def job(self, name: str, *, verbose: bool) -> Json:
        """One job."""
        ...

    def pods(self, name: str) -> list[Json]:
        """The pods of a job, in the order of their names."""
        ...

    def log(self, name: str, pod: str) -> Iterator[bytes]:
        """What a pod of a job has printed so far, in pieces."""
        ...

    def run(self, name: str, pod: str, command: Sequence[str]) -> JobOutput:
        """Run a command in a pod of a job, and wait for its end."""
        ...

    def cancel(self, name: str) -> None:
        """End a job."""
        ...

    def suspend(self, name: str, *, is_suspended: bool) -> None:
        """Stop a job, or let it go on."""
        ...

    def clusters(self) -> list[Json]:
        """Capacity by cluster and instance type."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...
