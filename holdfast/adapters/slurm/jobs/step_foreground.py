"""What the supervisor of a step needs of the process that stands in for srun."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.model.jobs import AttemptRecord


class RunningSrun(Protocol):
    """A running or ended srun."""

    pid: int

    @property
    def status(self) -> int | None:
        """Exit code, or the negative signal number; None while it runs."""
        ...

    def send(self, signum: int) -> None:
        """Send a signal to srun; no effect after its end."""
        ...


class Foreground(Protocol):
    """The process that stands in for srun: it has the terminal, the output and the signals."""

    is_ending: bool
    """Whether a signal asked to end the step."""

    def launch(self, argv: list[str], environment: Mapping[str, str]) -> RunningSrun:
        """Start srun, which gets the signals that this process receives from now on.

        Raises:
            BackendError: srun cannot be started.

        """
        ...

    def wait(self, timeout: timedelta) -> None:
        """Wait for a signal, a change of the state of srun, or the timeout."""
        ...

    def write(self, line: str) -> None:
        """Write a line to standard error, which is the output of the job."""
        ...


def write_message(foreground: Foreground, text: str) -> None:
    """Write a message of Holdfast to the output of the job."""
    foreground.write(f"holdfast: {text}")


class PreparedCheckpoints(NamedTuple):
    """What a launch resumes from."""

    lines: list[str]
    """Lines for the owner of the job."""

    step: int | None
    """Step from which the framework resumes; None if none is known."""


WatchSaves = Callable[[Path], None]
"""Called again and again while a step with a checkpoint directory runs, to verify its saves."""

PrepareCheckpoints = Callable[[Path, int | None, AttemptRecord | None], PreparedCheckpoints]
"""Makes the framework load a complete checkpoint of a directory, before an attempt.

Gets the directory, the number of the attempt, None if unknown, and the attempt before, if it ended
for its loss. Raises ``BackendError`` while a person has to decide.
"""


class CheckpointCalls(NamedTuple):
    """What is done with the checkpoints of a step."""

    prepare: PrepareCheckpoints
    watch_saves: WatchSaves
