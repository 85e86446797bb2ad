"""Port of a second location for checkpoints."""

from collections.abc import Iterable, Iterator
from typing import Protocol


class CopyStore(Protocol):
    """Objects by key, such as files below a directory or objects below a prefix of a bucket.

    A key is a relative path with ``/``. Each method raises ``BackendError`` if the location cannot
    be read or written.
    """

    @property
    def url(self) -> str:
        """Location, for messages."""
        ...

    def list_keys(self) -> Iterator[tuple[str, int]]:
        """Yield the key and the size in bytes of each object. A location may not exist yet."""
        ...

    def read(self, key: str) -> Iterator[bytes]:
        """Yield the content of an object in chunks of at most a few MiB."""
        ...

    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write an object durably.

        An interrupted write leaves nothing under ``key``, or the object that was there before.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete an object; no error if there is none."""
        ...
