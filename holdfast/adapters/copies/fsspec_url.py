"""Copies of checkpoints at a URL that fsspec knows, such as ``gs://`` or ``abfs://``.

Needs fsspec and the package of the protocol, for example ``pip install gcsfs``.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import fsspec

from holdfast.model.errors import BackendError, ConfigError

_CHUNK: Final = 1 << 20


class FsspecCopies:
    """``CopyStore`` of the files below a URL."""

    def __init__(self, url: str) -> None:
        """Use ``url``.

        Raises:
            ConfigError: fsspec does not know the protocol, or its package is missing.

        """
        try:
            found: tuple[Any, str] = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"{url}: {error}") from error
        self._files, root = found
        self._root = root.rstrip("/")
        self._url = url.rstrip("/")

    @property
    def url(self) -> str:
        """See ``CopyStore.url``."""
        return self._url

    def list_keys(self) -> Iterator[tuple[str, int]]:
        """See ``CopyStore.list_keys``."""
        with self._errors("list", ""):
            self._files.invalidate_cache()
            found = self._files.find(self._root, detail=True)
        for path, one in sorted(found.items()):
            yield path.removeprefix(self._root).lstrip("/"), one["size"]

    def read(self, key: str) -> Iterator[bytes]:
        """See ``CopyStore.read``."""
        with self._errors("read", key), self._files.open(f"{self._root}/{key}", "rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        """See ``CopyStore.write``."""
        path = f"{self._root}/{key}"
        with self._errors("write", key):
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            file, is_whole = self._files.open(path, "wb", autocommit=False), False
            try:
                for chunk in chunks:
                    file.write(chunk)
                file.close()
                is_whole = True
            finally:
                (file.commit if is_whole else file.discard)()

    def delete(self, key: str) -> None:
        """See ``CopyStore.delete``."""
        with self._errors("delete", key):
            try:
                self._files.rm_file(f"{self._root}/{key}")
            except FileNotFoundError:
                return

    @contextmanager
    def _errors(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # as fsspec's file systems report their services' errors
            raise BackendError(f"cannot {verb} {self._url}/{key}: {error}") from error
