"""Verification of checkpoints with the history of their directory, which it continues."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.attempt_result import AttemptKey
from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.history import read_history, write_history
from holdfast.apps.run.copy_restore import Restored, restore_newest
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.decisions.checkpoint_restore import (
    awaits_copy,
    needs_restore,
    own_copies_since,
    prefers_copy,
)
from holdfast.decisions.checkpoint_trust import (
    HISTORY_LIMIT,
    CheckpointPolicy,
    Trust,
    has_saved,
    with_attempt,
    with_bad_loss,
    with_end,
)
from holdfast.engine.checkpoint_guard import GuardResult, carry_out, inspect
from holdfast.engine.checkpoint_wording import report, why_suspected
from holdfast.model.checkpoints import (
    AttemptEnd,
    Checkpoint,
    CheckpointHistory,
    Depth,
    ResumedAttempt,
    Survey,
)
from holdfast.model.errors import BackendError
from holdfast.model.jobs import FailureKind
from holdfast.model.names import Reason
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

    cause: str = ""
    """Cause of its failure, one of ``model.names.Cause``; empty if none is known."""

    job_started_at: datetime | None = None
    """Start of the first attempt of the job; None if it is not known, or this is the first."""


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

    bad_loss: tuple[int, datetime] | None = None
    """Step with the bad loss for which ranks were stopped to start again in place, and the time at
    which it was reported; None for any other reason."""

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

    awaits_copy: bool = False
    """Whether the attempt must not start: the copy that it needs could not be restored."""


def preview(store: CheckpointDirectory, folder: Path, how: Verification) -> GuardResult:
    """Verify and decide; change nothing.

    Raises:
        BackendError: the directory cannot be read.

    """
    history = _before(read_history(folder), store.survey(), how)
    trust = Trust(policy=how.policy, history=history)
    return inspect(store, how.depth, how.quiet_since, trust)


def verify_and_record(store: CheckpointDirectory, folder: Path, how: Verification) -> Verified:
    """Verify, make the framework load the chosen checkpoint, and record what the attempt loads.

    Raises:
        BackendError: the directory cannot be read or written.

    """
    known = read_history(folder)
    history = _before(known, store.survey(), how)
    if how.bad_loss is not None:
        last = history.attempts[-1]
        key = AttemptKey(job=last.job, attempt=last.attempt)
        how = replace(how, attempt=NextAttempt(key=key))
    trust = Trust(policy=how.policy, history=history)
    found = inspect(store, how.depth, how.quiet_since, trust)
    restored_from, copy = found, _restored(store, found, history, how)
    if copy.name:
        trust = replace(trust, restored=copy.name)
        found = inspect(store, how.depth, how.quiet_since, trust)
    if not copy.awaits_decision:
        found = carry_out(store, found)
    moved = tuple(
        _moved(one, copy.moved[one.name], restored_from, found, how)
        for one in restored_from.before.checkpoints
        if one.name in copy.moved
    )
    moved += tuple(
        _moved(one, found.moved[one.name], found, found, how)
        for one in found.choice.aside
        if one.name in found.moved
    )
    starts = found.choice.outcome in _STARTS and not copy.awaits_decision
    starts = starts and not _has_begun(history, how)
    history = _continued(history, found, how.attempt if starts else None, moved)
    lines = list(copy.lines)
    if history != known:
        try:
            write_history(folder, history, may_be_inside=store.accepts_files)
        except BackendError as error:
            lines.append(f"history of {folder} not recorded: {error}")
    return Verified(
        found=found,
        lines=tuple(lines),
        history=history,
        moved=moved,
        awaits_copy=copy.awaits_decision,
    )


def lines_of(done: Verified, deeper: str) -> list[str]:
    """Return the lines to report before an attempt; ``deeper`` as in ``report``.

    Raises:
        AwaitsDecision: a person has to decide which checkpoint is loaded.

    """
    is_lost = done.awaits_copy and done.found.choice.outcome in _STARTS
    lines = [*([] if is_lost else report(done.found, deeper)), *done.lines]
    if done.awaits_copy or done.found.choice.outcome is ResumeOutcome.ASK:
        raise AwaitsDecision("; ".join(lines))
    return lines


def _restored(
    store: CheckpointDirectory, found: GuardResult, history: CheckpointHistory, how: Verification
) -> Restored:
    """Restore a copy if the attempt needs one, or if one is better than what would be loaded."""
    outcome = found.choice.outcome
    is_needed = needs_restore(outcome, history)
    since = None if is_needed or how.attempt is None else _own_since(outcome, history, how.attempt)
    is_needed = is_needed or since is not None
    if not how.copies or not (is_needed or prefers_copy(found.choice)):
        return Restored()
    restored = restore_newest(store, found, how.copies, since)
    if since is not None and not restored.has_copies:
        return Restored()  # the job has not saved yet
    if restored.name or not (is_needed and awaits_copy(outcome, has_copies=restored.has_copies)):
        return restored
    why = (
        f"{found.before.folder}: the job waits for a copy; repair the location of the copies,"
        " restore one, or remove the location from the settings to start without a copy"
    )
    return replace(restored, lines=(*restored.lines, why), awaits_decision=True)


def _own_since(
    outcome: ResumeOutcome, history: CheckpointHistory, attempt: NextAttempt
) -> datetime | None:
    return own_copies_since(outcome, history, attempt.key.job, attempt.job_started_at)


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


def _before(history: CheckpointHistory, survey: Survey, how: Verification) -> CheckpointHistory:
    """Return the history up to what starts next."""
    if how.bad_loss is not None:
        return _after_loss(history, survey, how.bad_loss, how.job)
    return _closed(history, survey, how.attempt)


def _has_begun(history: CheckpointHistory, how: Verification) -> bool:
    """Return whether the ranks have run since the bad loss, as far as the history shows.

    A launcher that takes over from another one repeats its last verification. What the ranks have
    saved since is from after the loss, so the record of when they began must stay.
    """
    return how.bad_loss is not None and history.attempts[-1].end is None


def _after_loss(
    history: CheckpointHistory, survey: Survey, bad_loss: tuple[int, datetime], job: str
) -> CheckpointHistory:
    """Return the history after ranks were stopped for a bad loss."""
    step, at = bad_loss
    newest_at = history.attempts[-1].newest_at if history.attempts else None
    end = AttemptEnd(
        kind=FailureKind.APPLICATION,
        reason=Reason.LOSS_NOT_FINITE,
        has_saved=has_saved(survey.checkpoints, newest_at),
        bad_step=step,
        bad_at=at,
    )
    return replace(history, attempts=with_bad_loss(history.attempts, end, job))


def _continued(
    history: CheckpointHistory,
    found: GuardResult,
    attempt: NextAttempt | None,
    moved: tuple[SetAside, ...],
) -> CheckpointHistory:
    """Return the history with the attempt that starts now, and what was moved for it."""
    now = datetime.now(UTC)
    history = replace(history, aside=(*history.aside, *moved)[-HISTORY_LIMIT:])
    history = replace(history, pin=None if found.choice.is_pinned else history.pin)
    if attempt is None:
        return history
    one = found.choice.resume
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
