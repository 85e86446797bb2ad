"""Notes which attempt of a job works with a directory of checkpoints: no earlier one may."""

from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.plain_files import read_text
from holdfast.kit.files import write_atomically
from holdfast.model.errors import BackendError

ATTEMPT_FILE: Final = ".holdfast-attempt"
"""The number of the last attempt that looked here, and its job."""


class ZombieAttempt(BackendError):
    """A later attempt of the job is at work already."""


def claim(path: Path, attempt: int, job: str = "") -> None:
    """Note which attempt of the job begins.

    Args:
        path: the file for it.
        attempt: its number.
        job: names the job; another job begins anew. Empty if nothing does: then it is the same.

    Raises:
        ZombieAttempt: a later one has begun before; this one must not go on.
        BackendError: it cannot be noted.

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
