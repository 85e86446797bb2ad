"""Verifies checkpoints before an attempt, and makes the framework load a complete one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.decisions.checkpoint_choice import Choice, ResumeOutcome, choose
from holdfast.decisions.checkpoint_trust import Trust
from holdfast.model.checkpoints import Checkpoint, Depth, Survey
from holdfast.ports.checkpoints import CheckpointStore


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardResult:
    """Result of a verification before an attempt: findings, decision and changes."""

    before: Survey
    """Survey before any change, with the results of the verification."""

    choice: Choice
    moved: Mapping[str, str] = field(default_factory=dict)
    """New locations of the checkpoints of ``choice.aside``, by name; empty after a dry run."""

    trust: Trust = field(default_factory=Trust)
    """History and policy of the decision."""

    is_done: bool = False
    """Whether the changes were made, if there were any to make."""

    @property
    def has_changes(self) -> bool:
        """Whether the choice requires any change."""
        may_act = self.choice.outcome in (ResumeOutcome.RESUME, ResumeOutcome.START_OVER)
        return may_act and (self.choice.repoint or bool(self.choice.aside))


def inspect(
    store: CheckpointStore,
    depth: Depth,
    quiet_since: datetime | None,
    trust: Trust | None = None,
) -> GuardResult:
    """Verify as many checkpoints as the decision needs; change nothing.

    Raises:
        BackendError: the directory cannot be read.

    """
    survey = store.survey()
    while True:
        choice = choose(survey, depth, quiet_since, trust)
        if choice.outcome is not ResumeOutcome.VERIFY or choice.verify is None:
            return GuardResult(before=survey, choice=choice, trust=trust or Trust())
        survey = verified(store, survey, choice.verify, choice.depth)


def verify_all(store: CheckpointStore, depth: Depth) -> Survey:
    """Verify every checkpoint of the directory.

    Raises:
        BackendError: the directory cannot be read.

    """
    survey = store.survey()
    for one in survey.checkpoints:
        survey = verified(store, survey, one, depth)
    return survey


def guard(
    store: CheckpointStore,
    depth: Depth,
    quiet_since: datetime | None,
    trust: Trust | None = None,
) -> GuardResult:
    """Verify, decide, and make the framework load the chosen checkpoint.

    Raises:
        BackendError: the directory cannot be read or written.

    """
    return carry_out(store, inspect(store, depth, quiet_since, trust))


def carry_out(store: CheckpointStore, found: GuardResult) -> GuardResult:
    """Make the changes that the choice requires, if any.

    Raises:
        BackendError: the directory cannot be written.

    """
    if not found.has_changes:
        return found
    choice = found.choice
    resume = choice.resume.name if choice.repoint and choice.resume is not None else None
    moved = store.apply(resume, [one.name for one in choice.aside])
    return replace(found, moved=moved, is_done=True)


def verified(store: CheckpointStore, survey: Survey, one: Checkpoint, depth: Depth) -> Survey:
    """Return the survey with one more checkpoint verified."""
    every = list(survey.checkpoints)
    at = [each.name for each in every].index(one.name)
    older = every[at + 1].name if at + 1 < len(every) else None
    every[at] = store.verify(one.name, depth, older)
    return replace(survey, checkpoints=tuple(every))
