"""Manifests of the checkpoints of a directory, in files beside it; see ``beside``."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from holdfast.adapters.checkpoints.beside import places, write_beside
from holdfast.kit.bounded_files import read_bounded
from holdfast.kit.files import open_lock, storage_error
from holdfast.kit.serial import parse_value, to_plain
from holdfast.model.checkpoint_manifests import CheckpointManifest, SaveSummary
from holdfast.model.errors import BackendError

_PREFIX: Final = ".holdfast-manifest."

_LOCK: Final = ".holdfast-watch"

_SUMMARY: Final = ".holdfast-saves"

WRITER_TIMEOUT: Final = timedelta(minutes=10)
"""How long the next ``holdfast checkpoint watch`` of a directory waits for the one before: that
ends with its attempt, after the checksums of the file that it reads."""

_RETRY_S: Final = 0.5

_SUMMARY_LIMIT: Final = 64 << 10

_LIMIT: Final = 64 << 20
"""Maximum bytes of a manifest: 300,000 files, or 90 TB."""


@contextmanager
def only_writer(folder: Path, timeout: timedelta = WRITER_TIMEOUT) -> Iterator[None]:
    """Wait until no other process writes the manifests of a directory, and keep others waiting.

    Other users cannot open the lock file, so only processes of this user hold the lock.

    Raises:
        BackendError: the lock file beside the directory cannot be opened, or another process holds
            it until the timeout.

    """
    path = next(places(folder, _LOCK))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(open_lock(path), "rb") as file:
            _lock(file.fileno(), path, time.monotonic() + timeout.total_seconds())
            yield
    except OSError as error:
        raise storage_error(error, path) from error


def _lock(handle: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BackendError(
                    f"{path}: another process watches this directory; end it, or wait"
                ) from None
            time.sleep(_RETRY_S)
        else:
            return


class DirectoryManifests:
    """A ``ManifestStore`` beside a checkpoint directory.

    Args:
        folder: the checkpoint directory.
        may_be_inside: whether the framework ignores foreign entries in the directory.

    """

    def __init__(self, folder: Path, *, may_be_inside: bool = False) -> None:
        self._folder = folder
        self._may_be_inside = may_be_inside

    def read(self, name: str) -> CheckpointManifest | None:
        """See ``ManifestStore.read``."""
        for path in places(self._folder, _suffix(name)):
            try:
                manifest = parse_value(CheckpointManifest, read_bounded(path, _LIMIT))
            except (OSError, ValueError):
                continue
            if manifest.name == name and all(_is_relative(file.path) for file in manifest.files):
                return manifest
        return None

    def names(self) -> frozenset[str]:
        """See ``ManifestStore.names``."""
        found: set[str] = set()
        for pattern in places(self._folder, _PREFIX):
            try:
                found.update(
                    unquote(path.name.removeprefix(pattern.name))
                    for path in pattern.parent.iterdir()
                    if path.name.startswith(pattern.name)
                )
            except OSError:
                continue
        return frozenset(found)

    def write(self, manifest: CheckpointManifest) -> None:
        """See ``ManifestStore.write``."""
        data = json.dumps(to_plain(manifest), separators=(",", ":")).encode()
        suffix = _suffix(manifest.name)
        write_beside(self._folder, suffix, data, may_be_inside=self._may_be_inside)

    def delete(self, name: str) -> None:
        """See ``ManifestStore.delete``."""
        for path in places(self._folder, _suffix(name)):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise BackendError(f"{path} cannot be deleted: {error.strerror}") from error

    def read_summary(self) -> SaveSummary | None:
        """See ``ManifestStore.read_summary``."""
        for path in places(self._folder, _SUMMARY):
            try:
                return parse_value(SaveSummary, read_bounded(path, _SUMMARY_LIMIT))
            except (OSError, ValueError):
                continue
        return None

    def write_summary(self, summary: SaveSummary) -> None:
        """See ``ManifestStore.write_summary``."""
        data = json.dumps(to_plain(summary)).encode()
        write_beside(self._folder, _SUMMARY, data, may_be_inside=self._may_be_inside)


def _is_relative(path: str) -> bool:
    """Return whether a path, which the job could have written, stays within the checkpoint.

    Also whether it can be that of a file: the kernel accepts no NUL, and Python no lone surrogate
    that it did not read from the kernel.
    """
    try:
        is_name = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return is_name and not path.startswith("/") and ".." not in path.split("/")


def _suffix(name: str) -> str:
    return _PREFIX + quote(name, safe="")
