"""Verifies the checkpoints of a job before an attempt starts, on every platform."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.attempt_result import AttemptKey
from holdfast.adapters.checkpoints.directory import CheckpointDirectory, latest_step
from holdfast.adapters.checkpoints.manifest_check import SAMPLE
from holdfast.apps.run.copy_restore import COPIES_VARIABLE
from holdfast.apps.run.resume_history import (
    AwaitsDecision,
    NextAttempt,
    Verification,
    verify_and_record,
)
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.decisions.checkpoint_trust import CheckpointPolicy
from holdfast.engine.checkpoint_wording import report
from holdfast.kit.units import format_duration, parse_duration
from holdfast.model.checkpoints import AttemptEnd, Depth
from holdfast.model.errors import BackendError
from holdfast.model.jobs import FailureKind, JobRecord

DEPTH_VARIABLE: Final = "HOLDFAST_CHECKPOINT_DEPTH"
"""Environment variable for the depth of the verification in a step of Slurm."""

ROLLBACK_VARIABLE: Final = "HOLDFAST_CHECKPOINT_MAX_ROLLBACK"
"""Environment variable for ``CheckpointPolicy.max_rollback`` outside of ``holdfast run``."""


def prepare(
    folder: Path,
    depth: Depth,
    *,
    policy: CheckpointPolicy | None = None,
    attempt: NextAttempt | None = None,
    copies: str = "",
    is_named: bool = True,
    deeper: str = "set jobs.checkpoint_depth to hashes",
) -> tuple[list[str], int | None]:
    """Make the framework load a complete checkpoint; no process of the job may be left.

    Where verification fails, nothing is changed and the attempt starts.

    Args:
        folder: where the job saves.
        depth: how thoroughly checkpoints are verified.
        policy: settings of the choice; the defaults if omitted.
        attempt: the attempt that starts, to record what it resumes from; None if it is not known.
        copies: location of copies to restore from if no good checkpoint is left; empty for none.
        is_named: whether somebody named the directory; then an unknown format is reported.
        deeper: what a person does to have checksums compared.

    Returns:
        Lines to report if another checkpoint is loaded than the newest, or something is wrong; and
        the step from which the framework resumes, None if none is known.

    Raises:
        AwaitsDecision: a person has to decide; the attempt must not start.

    """
    how = Verification(
        depth=depth,
        quiet_since=None,
        policy=policy or CheckpointPolicy(),
        attempt=attempt,
        copies=copies,
    )
    try:
        found, more = verify_and_record(CheckpointDirectory(folder, sample=SAMPLE), folder, how)
    except BackendError as error:
        return [str(error)], latest_step(folder)
    lines = report(found, deeper) if found.before.format or is_named else []
    if found.choice.outcome is ResumeOutcome.ASK:
        raise AwaitsDecision("; ".join(lines))
    return [*lines, *more], latest_step(folder)


def attempt_of(job: str, record: JobRecord) -> NextAttempt:
    """Return the attempt that a job starts, with how the one before ended."""
    end = AttemptEnd()
    if record.attempts and (failure := record.attempts[-1].failure) is not None:
        last = record.attempts[-1]
        end = AttemptEnd(
            kind=failure.kind,
            reason=failure.reason,
            first_step=last.first_step,
            last_step=last.last_step,
            bad_step=failure.step if failure.loss_action is not None else None,
            bad_at=failure.began_at if failure.loss_action is not None else None,
        )
    return NextAttempt(key=AttemptKey(job=job, attempt=record.attempt), previous=end)


def prepare_step(
    folder: Path, environment: Mapping[str, str], job: str = "", attempt: int | None = None
) -> tuple[list[str], int | None]:
    """See ``prepare``; the environment of a step of Slurm sets depth and limits.

    A step is launched again only after a fault of its nodes.
    """
    value = environment.get(DEPTH_VARIABLE, Depth.SIZES.value)
    known = [depth.value for depth in Depth]
    depth = Depth(value) if value in known else Depth.SIZES
    policy, wrong = limits_in(environment)
    if value not in known:
        expected = " or ".join(known)
        wrong.append(f"{DEPTH_VARIABLE} is {value!r}, expected {expected}; {depth} is used")
    lines, step = prepare(
        folder,
        depth,
        policy=policy,
        attempt=None if attempt is None else _step(job, attempt),
        copies=environment.get(COPIES_VARIABLE, ""),
        deeper=f"set {DEPTH_VARIABLE}={Depth.HASHES}",
    )
    return [*wrong, *lines], step


def _step(job: str, attempt: int) -> NextAttempt:
    end = AttemptEnd(kind=FailureKind.HARDWARE)
    return NextAttempt(key=AttemptKey(job=job, attempt=attempt), previous=end)


def limits_in(environment: Mapping[str, str]) -> tuple[CheckpointPolicy, list[str]]:
    """Return the policy, and a line for a limit that is not valid and is ignored."""
    policy = CheckpointPolicy()
    value = environment.get(ROLLBACK_VARIABLE, "")
    if not value:
        return policy, []
    try:
        return replace(policy, max_rollback=parse_duration(value)), []
    except ValueError as error:
        default = format_duration(policy.max_rollback)
        return policy, [f"{ROLLBACK_VARIABLE}: {error}; {default} is used"]
