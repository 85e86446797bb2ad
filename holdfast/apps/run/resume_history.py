"""Verification of checkpoints with the history of their directory, which it continues."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.attempt_result import AttemptKey
from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.history import read_history, write_history
from holdfast.apps.run.copy_restore import restore_newest
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.decisions.checkpoint_copies import needs_restore
from holdfast.decisions.checkpoint_trust import (
    HISTORY_LIMIT,
    CheckpointPolicy,
    Trust,
    has_saved,
    with_attempt,
    with_end,
)
from holdfast.engine.checkpoint_guard import GuardResult, guard, inspect
from holdfast.engine.checkpoint_wording import why_suspected
from holdfast.model.checkpoints import (
    AttemptEnd,
    Checkpoint,
    CheckpointHistory,
    Depth,
    ResumedAttempt,
    Survey,
)
from holdfast.model.errors import BackendError
from holdfast.model.set_aside import SUSPECTED, SetAside


class AwaitsDecision(BackendError):
    """A person has to decide which checkpoint the job resumes from."""


_STARTS: Final = (ResumeOutcome.RESUME, ResumeOutcome.START_OVER, ResumeOutcome.EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAttempt:
    """Attempt for which a directory is verified."""

    key: AttemptKey
    previous: AttemptEnd = field(default_factory=AttemptEnd)
    """How the attempt before ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """How to verify a directory."""

    depth: Depth
    quiet_since: datetime | None
    """See ``decisions.checkpoint_choice.choose``."""

    policy: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    attempt: NextAttempt | None = None
    """None outside of jobs."""

    copies: str = ""
    """Location of the copies to restore from if no good checkpoint is left; empty for none."""

    job: str = ""
    """Identifier of the job if ``attempt`` is None; empty outside of jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Result of a verification."""

    found: GuardResult
    lines: tuple[str, ...]
    """Which copy was restored, and why the history was not written, if so."""

    history: CheckpointHistory
    """History that is written, or was to be."""

    moved: tuple[SetAside, ...] = ()
    """Checkpoints that were moved now, oldest first."""


def preview(store: CheckpointDirectory, folder: Path, how: Verification) -> GuardResult:
    """Verify and decide; change nothing.

    Raises:
        BackendError: the directory cannot be read.

    """
    trust = Trust(policy=how.policy, history=read_history(folder))
    return inspect(store, how.depth, how.quiet_since, trust)


def verify_and_record(store: CheckpointDirectory, folder: Path, how: Verification) -> Verified:
    """Verify, make the framework load the chosen checkpoint, and record what the attempt loads.

    Raises:
        BackendError: the directory cannot be read or written.

    """
    known = read_history(folder)
    history = _closed(known, store.survey(), how.attempt)
    trust = Trust(policy=how.policy, history=history)
    found = guard(store, how.depth, how.quiet_since, trust)
    lines: list[str] = []
    moved: tuple[SetAside, ...] = ()
    if how.copies and needs_restore(found.choice.outcome, history):
        is_restored, lines, places = restore_newest(store, found, how.copies)
        broken = (one for one in found.before.checkpoints if one.name in places)
        before = found
        if is_restored:
            found = guard(store, how.depth, how.quiet_since, trust)
        moved = tuple(_moved(one, places[one.name], before, found, how) for one in broken)
    moved += tuple(
        _moved(one, found.moved[one.name], found, found, how)
        for one in found.choice.aside
        if one.name in found.moved
    )
    history = _continued(history, found, how.attempt, moved)
    if history != known:
        try:
            write_history(folder, history, may_be_inside=store.accepts_files)
        except BackendError as error:
            lines.append(f"history of {folder} not recorded: {error}")
    return Verified(found=found, lines=tuple(lines), history=history, moved=moved)


def _closed(
    history: CheckpointHistory, survey: Survey, attempt: NextAttempt | None
) -> CheckpointHistory:
    """Return the history after the attempt before ``attempt`` has ended."""
    if attempt is None or not history.attempts:
        return history
    saved = has_saved(survey.checkpoints, history.attempts[-1].newest_at)
    end = replace(attempt.previous, has_saved=saved)
    key = attempt.key
    return replace(history, attempts=with_end(history.attempts, end, key.job, key.attempt))


def _continued(
    history: CheckpointHistory,
    found: GuardResult,
    attempt: NextAttempt | None,
    moved: tuple[SetAside, ...],
) -> CheckpointHistory:
    """Return the history with the attempt that starts now, and what was moved for it."""
    now = datetime.now(UTC)
    choice = found.choice
    history = replace(history, aside=(*history.aside, *moved)[-HISTORY_LIMIT:])
    if choice.outcome not in _STARTS:
        return history
    history = replace(history, pin=None if choice.is_pinned else history.pin)
    if attempt is None:
        return history
    one = choice.resume
    resumed = ResumedAttempt(
        job=attempt.key.job,
        attempt=attempt.key.attempt,
        at=now,
        checkpoint=one.name if one is not None else "",
        saved_at=one.changed_at if one is not None else None,
        newest_at=max((each.changed_at for each in found.before.checkpoints), default=None),
    )
    return replace(history, attempts=with_attempt(history.attempts, resumed))


def _moved(
    one: Checkpoint, path: str, before: GuardResult, after: GuardResult, how: Verification
) -> SetAside:
    """Return the record of a checkpoint that was moved.

    Args:
        one: the checkpoint.
        path: its location now.
        before: decision by which it was moved.
        after: decision from what the attempt resumes.
        how: settings of the verification.

    """
    is_suspected = one in before.choice.suspected
    is_selected = before.choice.is_pinned and not one.is_broken
    resumed, key = after.choice.resume, how.attempt.key if how.attempt is not None else None
    job = key.job if key is not None else how.job
    return SetAside(
        name=one.name,
        path=path,
        why=_why(one, before),
        at=datetime.now(UTC),
        folder=before.before.folder,
        state=SUSPECTED if is_suspected else "" if is_selected else one.state.value,
        depth=one.depth.value if one.depth is not None else "",
        problems=(why_suspected(one, before.trust),) if is_suspected else one.problems,
        step=one.step,
        size=one.size,
        saved_at=one.changed_at,
        job=job,
        attempt=key.attempt if key is not None else None,
        resumed=resumed.name if resumed is not None else "",
        attempts=tuple(
            each.attempt
            for each in before.trust.history.attempts
            if each.job == job and each.checkpoint == one.name
        ),
    )


def _why(one: Checkpoint, found: GuardResult) -> str:
    if one in found.choice.suspected:
        return f"suspected: {why_suspected(one, found.trust)}"
    if found.choice.is_pinned and not one.is_broken:
        return "a person selected an older checkpoint"
    return f"{one.state.value}: {'; '.join(one.problems[:1])}"
