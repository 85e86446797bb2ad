"""Records which attempt of a job uses a checkpoint directory, and rejects earlier attempts."""

from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.plain_files import read_text
from holdfast.kit.files import write_atomically
from holdfast.model.errors import BackendError

ATTEMPT_FILE: Final = ".holdfast-attempt"
"""Name of the file with the number of the last attempt and its job."""


class ZombieAttempt(BackendError):
    """A later attempt of the job is already running."""


def claim(path: Path, attempt: int, job: str = "") -> None:
    """Record that an attempt of the job starts.

    Args:
        path: path of the file.
        attempt: number of the attempt.
        job: name of the job; another job starts over. If empty, the job counts as unchanged.

    Raises:
        ZombieAttempt: a later attempt has started before; this one must not continue.
        BackendError: the file cannot be written.

    """
    try:
        recorded, _, owner = (read_text(path) if path.exists() else "").partition(" ")
        is_same = not (job and owner) or job == owner
        if is_same and recorded.isascii() and recorded.isdecimal() and int(recorded) > attempt:
            raise ZombieAttempt(
                f"attempt {recorded} of this job uses {path.parent}; attempt {attempt} must end."
                f" If that attempt was of another job, remove {path}"
            )
        if (recorded, owner) != (str(attempt), job):
            write_atomically(path, f"{attempt} {job}".rstrip())
    except OSError as error:
        raise BackendError(f"{path} cannot be written: {error}") from error
