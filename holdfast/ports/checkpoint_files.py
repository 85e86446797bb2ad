"""Port of the files of checkpoints, for copies of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from holdfast.model.checkpoint_copies import CheckpointCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a checkpoint."""

    path: str
    """Relative to the checkpoint, with ``/``; empty if the checkpoint is one file."""

    size: int
    changed_ns: int
    """Modification time in nanoseconds since the epoch."""


class CheckpointFiles(Protocol):
    """Files of the checkpoints in one directory. Each method raises ``BackendError``."""

    def files(self, name: str) -> tuple[SourceFile, ...]:
        """Return the files of a checkpoint, in order of their paths."""
        ...

    def read(self, name: str, path: str) -> Iterator[bytes]:
        """Yield the content of a file in chunks of at most a few MiB."""
        ...

    def place(
        self,
        copy: CheckpointCopy,
        files: Iterable[tuple[str, Iterable[bytes]]],
        make_room: Callable[[], None] | None = None,
    ) -> None:
        """Create the checkpoint of a copy: it appears under its name once all files are durable.

        If ``files`` raises, nothing appears, and ``make_room`` is not called.

        Args:
            copy: name and times of the checkpoint.
            files: path and content of each file.
            make_room: called when all files are durable, before the checkpoint appears; it may
                move a checkpoint of the same name away. Without it, none may exist.

        """
        ...
