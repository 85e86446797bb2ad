"""Result of the verification before an attempt, shared with the other ranks by a file."""

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.plain_files import read_object
from holdfast.kit.files import storage_error, write_durably

RESULT_FILE: Final = ".holdfast-verified"
"""Suffix of the file beside the checkpoint directory, or its name in a directory that is a mount
point: what is beside that is not on the volume."""

_NOT_HERE: Final = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKey:
    """Identity of an attempt of a job."""

    job: str
    """Identifier that no other job has, such as a UID; empty if unknown."""

    attempt: int
    """Number of the attempt."""


def read_results(folder: Path) -> list[AttemptKey]:
    """Return the attempts for which the directory was last verified: one per place of the file.

    A file that cannot be read or is not valid counts as missing.
    """
    found = []
    for path in _paths(folder):
        try:
            content = read_object(path)
        except (OSError, ValueError):
            continue
        job, attempt = content.get("job"), content.get("attempt")
        if isinstance(job, str) and isinstance(attempt, int):
            found.append(AttemptKey(job=job, attempt=attempt))
    return found


def write_result(folder: Path, key: AttemptKey) -> None:
    """Record durably that the directory is verified for an attempt.

    Raises:
        BackendError: the file cannot be written.

    """
    data = json.dumps({"job": key.job, "attempt": key.attempt}).encode()
    paths = list(_paths(folder))
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, data)
        except OSError as error:
            if error.errno not in _NOT_HERE or path == paths[-1]:
                raise storage_error(error, path) from error
            continue
        return


def _paths(folder: Path) -> Iterator[Path]:
    """Yield the places of the file, the preferred one first."""
    resolved = folder.resolve()
    if not os.path.ismount(resolved):
        yield resolved.with_name(f".{resolved.name}{RESULT_FILE}")
    if resolved.is_dir():
        yield resolved / RESULT_FILE
