"""Attempt numbers of a job: each attempt has a larger number than the one before."""

from collections.abc import Mapping
from typing import Final

from holdfast.model.jobs import ATTEMPT_VARIABLE

RESTARTS: Final = "SLURM_RESTART_COUNT"
"""Environment variable with the number of requeues; Slurm sets it in requeued jobs."""

_RELAUNCHES: Final = 1000
"""Step between the attempt numbers of two requeues; a job may relaunch fewer times than that."""


def attempt_number(restarts: int, relaunches: int) -> int:
    """Return the attempt number: 1,000 for each requeue, plus 1 for each relaunch."""
    return restarts * _RELAUNCHES + min(relaunches, _RELAUNCHES - 1)


def restarts_of(attempt: int) -> int:
    """Return the number of requeues before an attempt."""
    return attempt // _RELAUNCHES


def restarts_in(environment: Mapping[str, str]) -> int:
    """Return how often the job was requeued."""
    return _number(environment.get(RESTARTS, "")) or 0


def attempt_in(environment: Mapping[str, str]) -> int | None:
    """Return the attempt number of the job in the environment; None if it is unknown."""
    attempt = _number(environment.get(ATTEMPT_VARIABLE, ""))
    if attempt is None and RESTARTS in environment:
        return attempt_number(restarts_in(environment), 0)
    return attempt


def job_in(environment: Mapping[str, str]) -> str:
    """Return the number of the job in the environment; empty outside of jobs. Requeues keep it."""
    return environment.get("SLURM_JOB_ID", "")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None
