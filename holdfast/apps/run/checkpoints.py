"""Verifies the checkpoints of a job before an attempt starts, on every platform."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.attempt_result import AttemptKey
from holdfast.adapters.checkpoints.directory import CheckpointDirectory, latest_step
from holdfast.adapters.checkpoints.manifest_check import SAMPLE
from holdfast.apps.run.copy_restore import copies_in
from holdfast.apps.run.resume_history import (
    NextAttempt,
    Verification,
    lines_of,
    verify_and_record,
)
from holdfast.decisions.checkpoint_trust import CheckpointPolicy, depth_after
from holdfast.kit.units import format_duration, parse_duration
from holdfast.model.checkpoints import AttemptEnd, Depth
from holdfast.model.errors import BackendError
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobRecord
from holdfast.model.set_aside import SetAside

DEPTH_VARIABLE: Final = "HOLDFAST_CHECKPOINT_DEPTH"
"""Environment variable for the depth of the verification in a step of Slurm."""

ROLLBACK_VARIABLE: Final = "HOLDFAST_CHECKPOINT_MAX_ROLLBACK"
"""Environment variable for ``CheckpointPolicy.max_rollback`` outside of ``holdfast run``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What an attempt resumes from."""

    lines: list[str]
    """Lines to report if another checkpoint is loaded than the newest, or something is wrong."""

    step: int | None
    """Step from which the framework resumes; None if none is known."""

    moved: tuple[SetAside, ...] = ()
    """Checkpoints that were moved for this attempt and earlier ones of the job."""


def prepare(
    folder: Path,
    depth: Depth,
    *,
    policy: CheckpointPolicy | None = None,
    attempt: NextAttempt | None = None,
    copies: str = "",
    is_named: bool = True,
    deeper: str = "set jobs.checkpoint_depth to hashes",
    report: Callable[[str], None] = lambda _: None,
) -> Prepared:
    """Make the framework load a complete checkpoint; no process of the job may be left.

    Where verification fails, nothing is changed and the attempt starts.

    Args:
        folder: where the job saves.
        depth: how thoroughly checkpoints are verified; checksums are compared, too, if the attempt
            before could not read its checkpoint.
        policy: settings of the choice; the defaults if omitted.
        attempt: the attempt that starts, to record what it resumes from; None if it is not known.
        copies: location of copies to restore from if no good checkpoint is left; empty for none.
        is_named: whether somebody named the directory; then an unknown format is reported.
        deeper: what a person does to have checksums compared.
        report: reports what takes long before it begins.

    Raises:
        AwaitsDecision: a person has to decide; the attempt must not start.

    """
    how = Verification(
        depth=depth_after(attempt.cause if attempt is not None else "", depth),
        quiet_since=None,
        policy=policy or CheckpointPolicy(),
        attempt=attempt,
        copies=copies,
    )
    if how.depth is not depth:
        report(f"{folder}: comparing checksums: the attempt before could not read its checkpoint")
    try:
        done = verify_and_record(CheckpointDirectory(folder, sample=SAMPLE), folder, how)
    except BackendError as error:
        return Prepared(lines=[str(error)], step=latest_step(folder))
    lines = lines_of(done, deeper)
    if not done.found.before.format and not is_named:
        lines = list(done.lines)
    job = attempt.key.job if attempt is not None else ""
    return Prepared(
        lines=lines,
        step=latest_step(folder),
        moved=tuple(one for one in done.history.aside if job and one.job == job),
    )


def attempt_of(job: str, record: JobRecord) -> NextAttempt:
    """Return the attempt that a job starts, with how the one before ended."""
    end, cause = AttemptEnd(), ""
    if record.attempts and (failure := record.attempts[-1].failure) is not None:
        end, cause = _end_of(record.attempts[-1], failure), failure.cause
    return NextAttempt(
        key=AttemptKey(job=job, attempt=record.attempt),
        previous=end,
        cause=cause,
        job_started_at=min((one.started_at for one in record.attempts), default=None),
    )


def _end_of(last: AttemptRecord, failure: Failure) -> AttemptEnd:
    return AttemptEnd(
        kind=failure.kind,
        reason=failure.reason,
        first_step=last.first_step,
        last_step=last.last_step,
        bad_step=failure.step if failure.loss_action is not None else None,
        bad_at=failure.began_at if failure.loss_action is not None else None,
    )


def prepare_step(
    folder: Path,
    environment: Mapping[str, str],
    job: str = "",
    attempt: int | None = None,
    ended: AttemptRecord | None = None,
) -> Prepared:
    """See ``prepare``; the environment of a step of Slurm sets depth and limits.

    Args:
        folder: where the job saves.
        environment: of the step.
        job: number of the job.
        attempt: number of the attempt that starts; None if it is not known.
        ended: the attempt before, if it ended for its loss. A step is launched again only for that,
            or after a fault of its nodes.

    """
    value = environment.get(DEPTH_VARIABLE, Depth.SIZES.value)
    known = [depth.value for depth in Depth]
    depth = Depth(value) if value in known else Depth.SIZES
    policy, wrong = limits_in(environment)
    if value not in known:
        expected = " or ".join(known)
        wrong.append(f"{DEPTH_VARIABLE} is {value!r}, expected {expected}; {depth} is used")
    prepared = prepare(
        folder,
        depth,
        policy=policy,
        attempt=None if attempt is None else _step(job, attempt, ended),
        copies=copies_in(environment),
        deeper=f"set {DEPTH_VARIABLE}={Depth.HASHES}",
    )
    return replace(prepared, lines=[*wrong, *prepared.lines])


def _step(job: str, attempt: int, ended: AttemptRecord | None) -> NextAttempt:
    end = AttemptEnd(kind=FailureKind.HARDWARE)
    if ended is not None and ended.failure is not None:
        end = _end_of(ended, ended.failure)
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
