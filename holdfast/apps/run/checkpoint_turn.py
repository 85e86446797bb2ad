"""Verification of checkpoints by one rank of an attempt, for which the other ranks wait."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.attempt_claim import ZombieAttempt
from holdfast.adapters.checkpoints.attempt_result import AttemptKey, read_results, write_result
from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.engine.checkpoint_guard import GuardResult, guard
from holdfast.engine.checkpoint_wording import report
from holdfast.kit.units import format_duration
from holdfast.model.checkpoints import Depth
from holdfast.model.errors import BackendError, ConfigError

RANK_VARIABLES: Final = ("RANK", "NODE_RANK", "JOB_COMPLETION_INDEX")
"""Environment variables with the rank of a pod, in order of preference. Kubeflow's operators set
the first; Jobs, JobSets and TrainJobs with completion mode Indexed the last."""

QUIET: Final = timedelta(minutes=1)
"""Age of the last change from which a checkpoint counts as no longer being written.

A rank that saves a checkpoint changes one of its files more often.
"""

_POLL_S: Final = 1.0
"""Interval in which ranks read the result. 2,000 ranks then cause 2,000 reads a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Directory to verify, and the attempt that it is verified for."""

    folder: Path
    depth: Depth
    format_name: str | None
    key: AttemptKey | None
    """The attempt; None if neither its number nor an identifier of the job is known."""

    timeout: timedelta


def rank_in(environment: Mapping[str, str]) -> int | None:
    """Return the rank in the environment; None if it has none.

    Raises:
        ConfigError: the value is not a rank.

    """
    for name in RANK_VARIABLES:
        if value := environment.get(name, ""):
            if not (value.isascii() and value.isdecimal()):
                raise ConfigError(f"{name} is {value!r}, expected a number from 0")
            return int(value)
    return None


def verify_for_all(
    turn: Turn, deeper: str, wait: Callable[[float], None] = time.sleep
) -> list[str]:
    """Make the framework load a complete checkpoint, and let the other ranks start.

    Where verification fails, nothing is changed and the attempt starts. When an attempt begins
    that Holdfast has restarted, no process of the job is left. Where that is not certain, as after
    a restart of the container alone, an incomplete checkpoint that changed within ``QUIET`` is not
    changed until that time has passed.

    Args:
        turn: directory and attempt.
        deeper: what a person does to have checksums compared.
        wait: waits for a number of seconds.

    Returns:
        Lines to report if another checkpoint is loaded than the newest, or something is wrong.

    Raises:
        ZombieAttempt: a later attempt of the job has begun.
        BackendError: the result cannot be written.

    """
    recorded = read_results(turn.folder)
    _reject_earlier(turn, recorded)
    is_new = turn.key is not None and turn.key.attempt > 1 and turn.key not in recorded
    try:
        lines = report(_verified(turn, wait, is_new=is_new), deeper)
    except BackendError as error:
        lines = [str(error)]
    if turn.key is not None:
        write_result(turn.folder, turn.key)
    return lines


def wait_for_result(turn: Turn, wait: Callable[[float], None] = time.sleep) -> None:
    """Return once rank 0 of the same attempt has verified the directory.

    Raises:
        ZombieAttempt: a later attempt of the job has begun.
        BackendError: rank 0 has not finished within the timeout.

    """
    deadline = time.monotonic() + turn.timeout.total_seconds()
    while turn.key is not None:
        recorded = read_results(turn.folder)
        if turn.key in recorded:
            return
        _reject_earlier(turn, recorded)
        if time.monotonic() > deadline:
            raise BackendError(
                f"{turn.folder}: rank 0 of attempt {turn.key.attempt} did not verify the"
                f" checkpoints within {format_duration(turn.timeout)}; read the log of its pod, and"
                " check that all pods mount the same volume and get the same HOLDFAST_ATTEMPT"
            )
        wait(_POLL_S)


def _verified(turn: Turn, wait: Callable[[float], None], *, is_new: bool) -> GuardResult:
    """Verify and change the directory; wait while a process may be writing to it."""
    deadline = time.monotonic() + turn.timeout.total_seconds() / 2
    while True:
        quiet_since = None if is_new else datetime.now(UTC) - QUIET
        store = CheckpointDirectory(turn.folder, turn.format_name)
        found = guard(store, turn.depth, quiet_since)
        if found.choice.outcome is not ResumeOutcome.BUSY or time.monotonic() > deadline:
            return found
        wait(_POLL_S)


def _reject_earlier(turn: Turn, recorded: list[AttemptKey]) -> None:
    """Raise ``ZombieAttempt`` if a later attempt of the same job has begun."""
    key = turn.key
    if key is None or not key.job:
        return
    for other in recorded:
        if other.job == key.job and other.attempt > key.attempt:
            raise ZombieAttempt(
                f"{turn.folder}: attempt {other.attempt} of job {key.job} has begun; attempt"
                f" {key.attempt} must end"
            )
