"""Which attempt of a job runs: a number that grows."""

from collections.abc import Mapping
from typing import Final

from holdfast.model.jobs import ATTEMPT_VARIABLE

RESTARTS: Final = "SLURM_RESTART_COUNT"
"""Set by Slurm in jobs that were requeued."""

_RELAUNCHES: Final = 1000
"""More than a job may have between two requeues."""


def attempt_number(restarts: int, relaunches: int) -> int:
    """Grows with each attempt of a job: by a thousand with each requeue, by one with a relaunch."""
    return restarts * _RELAUNCHES + min(relaunches, _RELAUNCHES - 1)


def restarts_in(environment: Mapping[str, str]) -> int:
    """How often the job was requeued."""
    return _number(environment.get(RESTARTS, "")) or 0


def attempt_in(environment: Mapping[str, str]) -> int | None:
    """The attempt that runs there; None if nothing tells."""
    attempt = _number(environment.get(ATTEMPT_VARIABLE, ""))
    if attempt is None and RESTARTS in environment:
        return attempt_number(restarts_in(environment), 0)
    return attempt


def job_in(environment: Mapping[str, str]) -> str:
    """The number of the job that runs there; empty outside of one. A requeue keeps it."""
    return environment.get("SLURM_JOB_ID", "")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None
