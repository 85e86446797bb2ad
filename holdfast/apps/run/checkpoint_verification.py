"""Verification of checkpoints by one rank of an attempt, for which the other ranks wait."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.attempt_claim import ZombieAttempt
from holdfast.adapters.checkpoints.attempt_result import AttemptKey, read_results, write_result
from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.manifest_check import SAMPLE
from holdfast.apps.run.resume_history import (
    AwaitsDecision,
    NextAttempt,
    Verification,
    Verified,
    lines_of,
    verify_and_record,
)
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.decisions.checkpoint_trust import CheckpointPolicy
from holdfast.decisions.loss_settings import parse_bad_loss
from holdfast.kit.units import format_duration
from holdfast.model.checkpoints import AttemptEnd, Depth
from holdfast.model.errors import BackendError, ConfigError
from holdfast.model.jobs import FailureKind
from holdfast.model.names import Reason
from holdfast.model.set_aside import SetAside

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
class AttemptVerification:
    """Directory to verify, and the attempt that it is verified for."""

    folder: Path
    depth: Depth
    format_name: str | None
    key: AttemptKey | None
    """The attempt; None if neither its number nor an identifier of the job is known."""

    timeout: timedelta
    policy: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    copies: str = ""
    """Location of copies to restore from if no good checkpoint is left; empty for none."""

    restart_reason: str = ""
    """Reason for which the controller ended the attempt before."""

    bad_loss: str = ""
    """Value of ``HOLDFAST_BAD_LOSS``."""


_OF_THE_PROGRAM: Final = frozenset(
    (Reason.RANK_EXITED, Reason.JOB_HUNG, Reason.LOSS_NOT_FINITE, Reason.LOSS_SPIKED)
)
"""Restart reasons for which no node is to blame."""


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
    verification: AttemptVerification, deeper: str, wait: Callable[[float], None] = time.sleep
) -> tuple[list[str], tuple[SetAside, ...]]:
    """Make the framework load a complete checkpoint, and let the other ranks start.

    Where verification fails, nothing is changed and the attempt starts. When an attempt begins
    that Holdfast has restarted, no process of the job is left. Where that is not certain, as after
    a restart of the container alone, an incomplete checkpoint that changed within ``QUIET`` is not
    changed until that time has passed.

    Args:
        verification: directory and attempt.
        deeper: what a person does to have checksums compared.
        wait: waits for a number of seconds.

    Returns:
        Lines to report if another checkpoint is loaded than the newest, or something is wrong; and
        the checkpoints that were moved.

    Raises:
        ZombieAttempt: a later attempt of the job has begun.
        AwaitsDecision: a person has to decide which checkpoint is loaded.
        BackendError: the result cannot be written.

    """
    recorded = read_results(verification.folder)
    _reject_earlier(verification, recorded)
    is_new = (
        verification.key is not None
        and verification.key.attempt > 1
        and verification.key not in recorded
    )
    moved: tuple[SetAside, ...] = ()
    try:
        done = _verified(verification, wait, is_new=is_new)
        lines, moved = lines_of(done, deeper), done.moved
    except AwaitsDecision:
        raise
    except BackendError as error:
        lines = [str(error)]
    if verification.key is not None:
        write_result(verification.folder, verification.key)
    return lines, moved


def wait_for_result(
    verification: AttemptVerification, wait: Callable[[float], None] = time.sleep
) -> None:
    """Return once rank 0 of the same attempt has verified the directory.

    Raises:
        ZombieAttempt: a later attempt of the job has begun.
        BackendError: rank 0 has not finished within the timeout.

    """
    deadline = time.monotonic() + verification.timeout.total_seconds()
    while verification.key is not None:
        recorded = read_results(verification.folder)
        if verification.key in recorded:
            return
        _reject_earlier(verification, recorded)
        if time.monotonic() > deadline:
            raise BackendError(
                f"{verification.folder}: rank 0 of attempt {verification.key.attempt} did not"
                f" verify the checkpoints within {format_duration(verification.timeout)}; read the"
                " log of its pod, and check that all pods mount the same volume and get the same"
                " HOLDFAST_ATTEMPT"
            )
        wait(_POLL_S)


def _verified(
    verification: AttemptVerification, wait: Callable[[float], None], *, is_new: bool
) -> Verified:
    """Verify and change the directory; wait while a process may be writing to it."""
    deadline = time.monotonic() + verification.timeout.total_seconds() / 2
    while True:
        quiet_since = None if is_new else datetime.now(UTC) - QUIET
        store = CheckpointDirectory(verification.folder, verification.format_name, sample=SAMPLE)
        how = Verification(
            depth=verification.depth,
            quiet_since=quiet_since,
            policy=verification.policy,
            copies=verification.copies,
            attempt=None
            if verification.key is None
            else NextAttempt(key=verification.key, previous=_end(verification)),
        )
        done = verify_and_record(store, verification.folder, how)
        is_busy = done.found.choice.outcome is ResumeOutcome.BUSY
        if not is_busy or time.monotonic() > deadline:
            return done
        wait(_POLL_S)


def _end(verification: AttemptVerification) -> AttemptEnd:
    """Return how the previous attempt ended, from the variables that the controller sets."""
    if not verification.restart_reason:
        return AttemptEnd()
    is_program = verification.restart_reason in _OF_THE_PROGRAM
    kind = FailureKind.APPLICATION if is_program else FailureKind.HARDWARE
    step, at = parse_bad_loss(verification.bad_loss) or (None, None)
    return AttemptEnd(kind=kind, reason=verification.restart_reason, bad_step=step, bad_at=at)


def _reject_earlier(verification: AttemptVerification, recorded: list[AttemptKey]) -> None:
    """Raise ``ZombieAttempt`` if a later attempt of the same job has begun."""
    key = verification.key
    if key is None or not key.job:
        return
    for other in recorded:
        if other.job == key.job and other.attempt > key.attempt:
            raise ZombieAttempt(
                f"{verification.folder}: attempt {other.attempt} of job {key.job} has begun;"
                f" attempt {key.attempt} must end"
            )
