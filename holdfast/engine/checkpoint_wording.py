"""Messages about the checkpoints of a job."""

import shlex
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from holdfast.decisions.checkpoint_choice import Choice, ResumeOutcome
from holdfast.decisions.checkpoint_restore import RestorePlan
from holdfast.decisions.checkpoint_trust import (
    Rollback,
    Trust,
    failures_after,
    has_nan,
    poisoned_by,
)
from holdfast.engine.checkpoint_guard import GuardResult
from holdfast.kit.units import counted, format_duration, one_line
from holdfast.model.checkpoints import Checkpoint, Depth, PointerKind

_NAME: Final = 200
_LISTED: Final = 3
"""Maximum number of problems of one checkpoint that a message names."""


def sentences(found: GuardResult, deeper: str) -> list[str]:
    """Return messages for people, one line each: what is broken, what was done, what is loaded.

    ``deeper`` is the hint how to compare checksums, such as ``use --depth hashes``.
    """
    folder = found.before.folder
    if found.choice.outcome is ResumeOutcome.MISSING:
        return [f"{folder} does not exist yet; the job starts from the beginning"]
    lines = [_broken(found, one) for one in found.before.checkpoints if one.problems]
    lines += [_suspected(found, one) for one in found.choice.suspected]
    lines += [*_changes(found), _result(found, deeper)]
    if (lost := found.before.lost) is not None:
        name, at = one_line(lost.name, _NAME), f"{lost.at:%Y-%m-%d %H:%M:%S}Z"
        lines.append(f"{name} (step {lost.step}) was reported as saved at {at}, but does not exist")
    return [f"{folder}: {line}" for line in lines]


def report(found: GuardResult, deeper: str) -> list[str]:
    """Return ``sentences`` for a log; none if the newest checkpoint is loaded without a change."""
    as_it_is = found.choice.outcome in (
        ResumeOutcome.EMPTY,
        ResumeOutcome.MISSING,
        ResumeOutcome.RESUME,
    )
    is_normal = as_it_is and not found.has_changes and not found.choice.suspected
    return [] if is_normal else sentences(found, deeper)


def why_suspected(one: Checkpoint, trust: Trust) -> str:
    """Return why a complete checkpoint is suspected, in a few words."""
    if has_nan(one, trust):
        return f"NaN in {_joined(one.nan)}"
    poisoned = poisoned_by(one, trust)
    if poisoned is not None and poisoned.end is not None:
        end = poisoned.end
        return f"attempt {poisoned.attempt} saved it after step {end.bad_step} ({end.reason})"
    failed = failures_after(one, trust)
    numbers = ", ".join(str(each.attempt) for each in failed)
    reasons = ", ".join(dict.fromkeys(each.end.reason for each in failed if each.end is not None))
    within = (
        f"within {trust.policy.suspect_steps} steps after it"
        if any(each.end is not None and each.end.last_step is not None for each in failed)
        else "before they saved another one"
    )
    because = f" ({reasons})" if reasons else ""
    return f"{counted(len(failed), 'attempt')} failed on healthy nodes {within}: {numbers}{because}"


def _suspected(found: GuardResult, one: Checkpoint) -> str:
    text = f"{one.name} is complete, but suspected: {why_suspected(one, found.trust)}"
    if one is found.choice.resume:
        return (
            f"{text}; no older checkpoint is complete, so the job resumes from it. Check the"
            " program and its data first"
        )
    if not found.has_changes or not found.is_done:
        return f"{text}; it would be moved out of the directory" if found.has_changes else text
    where, folder = found.moved.get(one.name), found.before.folder
    moved = f"; moved to {where}" if where is not None else ""
    back = shlex.join(["holdfast", "checkpoint", "release", folder, one.name])
    return f"{text}{moved}. To put it back, run: {back}"


def _broken(found: GuardResult, one: Checkpoint) -> str:
    reported = ""
    if one.reported_at is not None:
        reported = f", although it was reported as saved at {one.reported_at:%Y-%m-%d %H:%M:%S}Z"
    text = f"{one.name} is {one.state.value}: {_joined(one.problems)}{reported}"
    if not found.has_changes or one not in found.choice.aside:
        return text
    if not found.is_done:
        return f"{text}; it would be moved out of the directory"
    where = found.moved.get(one.name)
    return f"{text}; moved to {where}" if where is not None else text


def _joined(problems: Sequence[str]) -> str:
    more = len(problems) - _LISTED
    listed = (f"it {one}" if one.startswith("is ") else one for one in problems[:_LISTED])
    return "; ".join(listed) + (f"; and {more} more" if more > 0 else "")


def _changes(found: GuardResult) -> list[str]:
    if not found.has_changes:
        return []
    choice, pointer, lines = found.choice, found.before.pointer, []
    if choice.repoint and choice.resume is not None:
        verb = "was set" if found.is_done else "would be set"
        was = "missing" if pointer.kind is PointerKind.ABSENT else repr(pointer.text)
        lines.append(f"{pointer.file} (was {was}) {verb} to {choice.resume.name}")
    return lines


def _result(found: GuardResult, deeper: str) -> str:
    choice, pointer = found.choice, found.before.pointer
    one = choice.resume
    match choice.outcome:
        case ResumeOutcome.EMPTY:
            return "no checkpoint yet; the job starts from the beginning"
        case ResumeOutcome.RESUME if one is None:
            return f"{pointer.file} names {pointer.text!r}; the framework loads it unchanged"
        case ResumeOutcome.RESUME if one is not None:
            pinned = "selected by a person and " if choice.is_pinned else ""
            cost = _cost(choice.cost)
            lost = f"; the job repeats {cost}" if cost and not choice.is_pinned else ""
            return f"{one.name} is {pinned}complete ({_depth(one, deeper)}); {_loader(found)}{lost}"
        case ResumeOutcome.ASK if one is not None:
            return _ask(found, one)
        case ResumeOutcome.START_OVER:
            return _start_over(found)
        case ResumeOutcome.NONE_COMPLETE:
            return (
                "no checkpoint is complete; nothing was changed. Restore a copy, or move the"
                " checkpoints and the tracker away to start from the beginning"
            )
        case ResumeOutcome.BUSY:
            return (
                "an incomplete checkpoint was modified a moment ago, so a process may still be"
                " writing it; nothing was changed. Run this again when no rank of the job runs"
            )
        case _:
            return _undecided(found)


def _cost(cost: Rollback) -> str:
    """Return what is lost, in steps and time; empty if nothing is."""
    parts = [counted(cost.steps, "step")] if cost.steps else []
    if cost.time >= timedelta(seconds=1):
        parts.append(f"{format_duration(cost.time)} of saved training")
    return " and ".join(parts)


def _ask(found: GuardResult, one: Checkpoint) -> str:
    choose = ["holdfast", "checkpoint", "choose", found.before.folder]
    policy = found.trust.policy
    limits = [format_duration(policy.max_rollback)] if policy.max_rollback else []
    limits += [counted(policy.max_rollback_steps, "step")] if policy.max_rollback_steps else []
    return (
        f"resuming from {one.name} repeats {_cost(found.choice.cost)}, more than"
        f" {' or '.join(limits)}; nothing was changed, and the job waits. Restore a newer"
        f" checkpoint, or accept with: {shlex.join([*choose, one.name])}"
    )


def _depth(one: Checkpoint, deeper: str) -> str:
    if one.depth is Depth.HASHES:
        return "sizes and checksums"
    if one.watched_at is not None and one.compared:
        at = f"{one.watched_at:%Y-%m-%d %H:%M:%S}Z"
        blocks = counted(one.compared, "block")
        return f"sizes, and the checksums of {blocks} as in the manifest of {at}"
    return f"sizes only; checksums not compared, {deeper}"


def _loader(found: GuardResult) -> str:
    if found.before.script_chooses:
        return "the script should load it"
    return "the framework loads it"


def _start_over(found: GuardResult) -> str:
    one = found.before.checkpoints[0]
    if found.choice.aside:
        return (
            f"{one.name} was the first save and was interrupted; the job starts from the beginning"
        )
    return (
        f"{one.name} looks complete, but {found.before.pointer.file}, which is written after it, is"
        " missing; it was left alone, and the job starts from the beginning"
    )


def _undecided(found: GuardResult) -> str:
    one = found.choice.verify
    if one is None:
        return (
            f"{', '.join(found.before.others[:_LISTED])}: no checkpoint of a known format; nothing"
            " was changed. Specify --format, or the directory that contains the checkpoints"
        )
    if (other := found.choice.resume) is not None:
        return (
            f"{one.name} is loaded by its name, and moving it would let the job start from the"
            f" beginning; nothing was changed. {other.name} is complete: let the job load it, or"
            f" replace {one.name} with a copy of it"
        )
    return (
        f"{one.name}, which would be loaded, cannot be verified; nothing was changed. Inspect it,"
        " or move it away to resume from the one before"
    )


def no_copy(plan: RestorePlan, location: str) -> str:
    """Return why no copy is restored without a person, and how a person restores one."""
    found = plan.too_old or plan.suspected
    if not found:
        return f"no copy in {location} is newer than what the directory has"
    why = "older than the limit of a rollback" if plan.too_old else "suspected"
    subject = counted(len(found), "copy", "copies") + (" is " if len(found) == 1 else " are ")
    command = ["holdfast", "checkpoint", "restore", location, "DIRECTORY", "--name", found[0].name]
    return f"{subject}{why}; to restore the newest one, run: {shlex.join(command)}"


def restored_because(choice: Choice) -> str:
    """Return why a copy was restored."""
    if choice.outcome is ResumeOutcome.ASK and choice.resume is not None:
        return f"{choice.resume.name} is older than the limit of a rollback"
    if choice.resume is not None:
        return f"{choice.resume.name} is suspected, and no other checkpoint was complete"
    return "no good checkpoint was left"
