"""Port of the files of checkpoints, for copies of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


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
        self, name: str, files: Iterable[tuple[str, Iterable[bytes]]], saved_at: datetime
    ) -> None:
        """Create a checkpoint: it appears under its name once all files are durable.

        If ``files`` raises, nothing appears.

        Args:
            name: name of the checkpoint, which must not exist.
            files: path and content of each file.
            saved_at: modification time of the files.

        """
        ...
