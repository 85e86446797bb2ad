"""Port of a checkpoint directory, for the guard before each attempt."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.model.checkpoints import Checkpoint, Depth, Survey


class CheckpointStore(Protocol):
    """One directory of checkpoints of one framework."""

    def survey(self) -> Survey:
        """Return the checkpoints there, none of them verified, and what the framework will load.

        ``Survey.format`` is empty where no format is recognized; a directory that does not exist
        or is empty has no checkpoints and no format. ``Survey.exists`` is true of an empty one.

        Raises:
            BackendError: the directory cannot be read.

        """
        ...

    def verify(self, name: str, depth: Depth, older: str | None) -> Checkpoint:
        """Verify one checkpoint and change nothing.

        Args:
            name: name of the checkpoint.
            depth: depth of the verification.
            older: name of the next older one, to compare file names with; None if there is none.

        Raises:
            BackendError: the directory cannot be read.

        """
        ...

    def apply(self, resume: str | None, aside: Sequence[str]) -> Mapping[str, str]:
        """Make the framework load ``resume``, and move others to another directory.

        The pointer is set first, durably, so that a process that is killed between two steps leaves
        a directory of which the framework loads a complete checkpoint. Repeating it changes nothing
        more. Nothing is deleted.

        Args:
            resume: checkpoint that the tracker or link has to name; None leaves it unchanged.
            aside: checkpoints to move.

        Returns:
            New location of each of ``aside``, by name; one that was already gone is left out.

        Raises:
            BackendError: something cannot be written.

        """
        ...
