"""Laws of the choice of a checkpoint, for all directories."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.checkpoint_choice import Choice, ResumeOutcome, choose
from holdfast.model.checkpoints import (
    Checkpoint,
    CheckpointState,
    Depth,
    Pointer,
    PointerKind,
    Survey,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)
QUIET = NOW - timedelta(minutes=1)

judged = st.sampled_from([one for one in CheckpointState if one is not CheckpointState.UNVERIFIED])


@st.composite
def surveys(draw: st.DrawFn) -> tuple[Survey, dict[str, CheckpointState]]:
    """A directory, nothing of it verified, and what verification would find."""
    steps = sorted(draw(st.sets(st.integers(1, 6), max_size=5)), reverse=True)
    every = tuple(
        Checkpoint(
            name=f"step-{step}",
            step=step,
            is_ended=draw(st.booleans()),
            changed_at=draw(st.sampled_from([QUIET - TICK, QUIET, QUIET + TICK])),
        )
        for step in steps
    )
    kind = draw(st.sampled_from(PointerKind))
    named = draw(st.integers(1, 6)) if kind is PointerKind.NAMED else None
    name = f"step-{named}" if named is not None else ""
    pointer = Pointer(kind=kind, file="latest", text=name, name=name, step=named)
    truth = {one.name: draw(judged) for one in every}
    return Survey(folder="/c", format="f", checkpoints=every, pointer=pointer), truth


def settled(
    survey: Survey, truth: dict[str, CheckpointState], depth: Depth, quiet: datetime | None
) -> tuple[Survey, Choice]:
    """Verify what the choice asks for until it is made."""
    for _ in range(2 * len(survey.checkpoints) + 1):
        choice = choose(survey, depth, quiet)
        if choice.outcome is not ResumeOutcome.VERIFY:
            return survey, choice
        assert choice.verify is not None
        checkpoints = tuple(
            replace(one, state=truth[one.name], depth=choice.depth)
            if one.name == choice.verify.name
            else one
            for one in survey.checkpoints
        )
        survey = replace(survey, checkpoints=checkpoints)
    raise AssertionError("the choice asks for the same again and again")


quiet_times = st.sampled_from([None, QUIET])
depths = st.sampled_from(Depth)


@given(surveys(), depths, quiet_times)
def test_only_a_complete_checkpoint_verified_as_asked_is_resumed_from(given, depth, quiet) -> None:
    survey, choice = settled(*given, depth, quiet)

    if choice.resume is not None:
        assert choice.resume.state is CheckpointState.COMPLETE
        assert choice.resume.depth in (depth, Depth.HASHES)
        assert choice.resume in survey.checkpoints


@given(surveys(), depths, quiet_times)
def test_only_what_is_known_to_be_broken_is_moved(given, depth, quiet) -> None:
    _, choice = settled(*given, depth, quiet)

    assert all(one.is_broken for one in choice.aside)


@given(surveys(), depths)
def test_what_may_still_be_written_is_never_touched(given, depth) -> None:
    _, choice = settled(*given, depth, QUIET)

    if choice.outcome is not ResumeOutcome.BUSY:
        assert all(one.changed_at <= QUIET for one in choice.aside)


@given(surveys(), depths, quiet_times)
def test_after_the_changes_the_framework_loads_what_was_chosen(given, depth, quiet) -> None:
    survey, choice = settled(*given, depth, quiet)
    if choice.outcome is not ResumeOutcome.RESUME or choice.resume is None:
        return

    pointer = survey.pointer
    if choice.repoint:
        one = choice.resume
        pointer = Pointer(kind=PointerKind.NAMED, name=one.name, step=one.step)
    left = tuple(one for one in survey.checkpoints if one not in choice.aside)
    after = replace(survey, checkpoints=left, pointer=pointer)

    assert after.loaded == choice.resume
    again = choose(after, depth, quiet)
    assert (again.outcome, again.repoint, again.aside) == (ResumeOutcome.RESUME, False, ())


@given(surveys(), depths, quiet_times)
def test_a_tracker_that_names_a_step_is_never_moved_to_a_newer_one(given, depth, quiet) -> None:
    survey, choice = settled(*given, depth, quiet)

    if survey.pointer.step is not None and choice.resume is not None:
        assert choice.resume.step is not None
        assert choice.resume.step <= survey.pointer.step


@given(surveys(), depths, quiet_times)
def test_a_newer_complete_checkpoint_is_passed_over_only_by_a_tracker(given, depth, quiet) -> None:
    survey, truth = given
    _, choice = settled(survey, truth, depth, quiet)

    if survey.pointer.kind is PointerKind.NONE and choice.resume is not None:
        names = [one.name for one in survey.checkpoints]
        before = names[: names.index(choice.resume.name)]
        assert CheckpointState.COMPLETE not in [truth[name] for name in before]


@given(surveys(), depths, quiet_times)
def test_a_job_starts_over_only_where_no_save_but_the_first_began(given, depth, quiet) -> None:
    survey, choice = settled(*given, depth, quiet)

    if choice.outcome is ResumeOutcome.START_OVER:
        assert len(survey.checkpoints) == 1
        assert survey.pointer.kind in (PointerKind.NONE, PointerKind.ABSENT)
        assert all(one.state is not CheckpointState.DAMAGED for one in survey.checkpoints)
        assert all(one.state is CheckpointState.INCOMPLETE for one in choice.aside)
    if choice.outcome is ResumeOutcome.EMPTY:
        assert survey.checkpoints == ()
