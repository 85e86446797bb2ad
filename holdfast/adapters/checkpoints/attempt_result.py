"""Result of the verification before an attempt, shared with the other ranks by a file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.beside import places, write_beside
from holdfast.adapters.checkpoints.plain_files import read_object

RESULT_FILE: Final = ".holdfast-verified"
"""Suffix of the file; see ``beside``."""


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
    for path in places(folder, RESULT_FILE):
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
    write_beside(folder, RESULT_FILE, data)
