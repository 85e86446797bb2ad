"""Records which attempt of a job uses a checkpoint directory, and rejects earlier attempts."""

from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.beside import places, write_beside
from holdfast.adapters.checkpoints.plain_files import read_text
from holdfast.model.errors import BackendError

ATTEMPT_FILE: Final = ".holdfast-attempt"
"""Suffix of the file with the number of the last attempt and its job; see ``beside``."""


class ZombieAttempt(BackendError):
    """A later attempt of the job is already running."""


def claim(folder: Path, attempt: int, job: str = "", *, may_be_inside: bool = True) -> None:
    """Record that an attempt of the job starts.

    Args:
        folder: the checkpoint directory.
        attempt: number of the attempt.
        job: name of the job; another job starts over. If empty, the job counts as unchanged.
        may_be_inside: whether the framework ignores foreign entries in the directory.

    Raises:
        ZombieAttempt: a later attempt has started before; this one must not continue.
        BackendError: the file cannot be read or written.

    """
    path, text = _recorded(folder)
    recorded, _, owner = text.partition(" ")
    is_same = not (job and owner) or job == owner
    if is_same and recorded.isascii() and recorded.isdecimal() and int(recorded) > attempt:
        raise ZombieAttempt(
            f"attempt {recorded} of this job uses {folder}; attempt {attempt} must end."
            f" If that attempt was of another job, remove {path}"
        )
    if (recorded, owner) != (str(attempt), job):
        data = f"{attempt} {job}".rstrip().encode()
        write_beside(folder, ATTEMPT_FILE, data, may_be_inside=may_be_inside)


def _recorded(folder: Path) -> tuple[Path, str]:
    """Return the file and its text; an empty text if there is none."""
    path = folder
    for path in places(folder, ATTEMPT_FILE):
        try:
            if path.exists():
                return path, read_text(path)
        except OSError as error:
            raise BackendError(f"{path} cannot be read: {error}") from error
    return path, ""
