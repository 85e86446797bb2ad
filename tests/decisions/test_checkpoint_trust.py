"""Laws of the suspicion against complete checkpoints, and of the limits of a rollback."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.checkpoint_choice import Choice, ResumeOutcome, choose
from holdfast.decisions.checkpoint_trust import (
    HISTORY_LIMIT,
    CheckpointPolicy,
    Trust,
    depth_after,
    failures_after,
    is_suspected,
    is_too_far,
    rollback,
    with_attempt,
    with_end,
)
from holdfast.model.checkpoints import (
    AttemptEnd,
    Checkpoint,
    CheckpointHistory,
    CheckpointState,
    Depth,
    Pin,
    Pointer,
    PointerKind,
    Released,
    ResumedAttempt,
    Survey,
)
from holdfast.model.jobs import FailureKind
from holdfast.model.names import Cause

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)


def saved(step: int, state: CheckpointState = CheckpointState.COMPLETE) -> Checkpoint:
    """A checkpoint that is saved every hour, and has 100 steps more than the one before."""
    return Checkpoint(
        name=f"step-{step}",
        step=step,
        is_ended=True,
        changed_at=NOW + step / 100 * HOUR,
        state=state,
        depth=Depth.SIZES,
    )


def resumed(
    attempt: int,
    one: Checkpoint | None,
    *,
    kind: FailureKind | None = FailureKind.APPLICATION,
    steps: tuple[int, int] | None = None,
    has_saved: bool = False,
) -> ResumedAttempt:
    """An ended attempt that resumed from a checkpoint."""
    first, last = steps if steps is not None else (None, None)
    return ResumedAttempt(
        job="job",
        attempt=attempt,
        at=one.changed_at if one is not None else NOW,
        checkpoint=one.name if one is not None else "",
        saved_at=one.changed_at if one is not None else None,
        newest_at=one.changed_at if one is not None else None,
        end=AttemptEnd(kind=kind, first_step=first, last_step=last, has_saved=has_saved),
    )


def trust(*attempts: ResumedAttempt, policy: CheckpointPolicy | None = None) -> Trust:
    return Trust(policy=policy or CheckpointPolicy(), history=CheckpointHistory(attempts=attempts))


def survey(*checkpoints: Checkpoint, pointer: Pointer | None = None) -> Survey:
    return Survey(folder="/c", format="f", checkpoints=checkpoints, pointer=pointer or Pointer())


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[Checkpoint, ...], Trust]:
    """Complete and broken checkpoints, and attempts that resumed from some of them."""
    usual = [CheckpointState.COMPLETE, CheckpointState.COMPLETE, CheckpointState.DAMAGED]
    steps = sorted(draw(st.sets(st.sampled_from([100, 200, 300, 400]))), reverse=True)
    every = tuple(saved(step, draw(st.sampled_from(usual))) for step in steps)
    attempts = []
    for number in range(1, draw(st.integers(0, 6)) + 1):
        one = draw(st.sampled_from([None, *every]))
        first = one.step or 0 if one is not None else 0
        ran = draw(st.sampled_from([None, 0, 9, 10, 50]))
        attempts.append(
            resumed(
                number,
                one,
                kind=draw(st.sampled_from([*FailureKind, None])),
                steps=None if ran is None else (first, first + ran),
                has_saved=draw(st.booleans()),
            )
        )
    policy = CheckpointPolicy(
        suspect_attempts=draw(st.integers(0, 3)),
        max_rollback=draw(st.sampled_from([timedelta(0), HOUR, 2 * HOUR])),
        max_rollback_steps=draw(st.sampled_from([0, 99, 100, 200])),
    )
    return every, trust(*attempts, policy=policy)


def chosen(every: tuple[Checkpoint, ...], known: Trust) -> Choice:
    return choose(survey(*every), Depth.SIZES, None, known)


@given(histories())
def test_a_suspected_checkpoint_is_resumed_from_only_if_no_other_is_complete(given) -> None:
    every, known = given
    choice = chosen(every, known)

    if choice.resume is not None and is_suspected(choice.resume, known):
        complete = [one for one in every if one.state is CheckpointState.COMPLETE]
        assert all(is_suspected(one, known) for one in complete)
        assert choice.resume is complete[0]
        assert choice.suspected == (choice.resume,)
        assert choice.resume not in choice.aside


@given(histories())
def test_a_complete_checkpoint_is_moved_only_if_attempts_failed_after_it(given) -> None:
    every, known = given

    for one in chosen(every, known).aside:
        assert one.is_broken or len(failures_after(one, known)) >= known.policy.suspect_attempts > 0


@given(histories())
def test_no_rollback_beyond_the_limit_without_a_person(given) -> None:
    every, known = given
    choice = chosen(every, known)
    if choice.resume is None or choice.outcome is not ResumeOutcome.RESUME:
        return

    policy = known.policy
    assert not policy.max_rollback or choice.cost.time <= policy.max_rollback
    assert not policy.max_rollback_steps or (choice.cost.steps or 0) <= policy.max_rollback_steps


@given(histories(), st.sampled_from([100, 200, 300, 400]))
def test_what_a_person_selects_is_resumed_from_if_it_is_complete(given, step: int) -> None:
    every, known = given
    pin = Pin(name=f"step-{step}", at=NOW)
    known = replace(known, history=replace(known.history, pin=pin))
    choice = chosen(every, known)

    one = survey(*every).named(pin.name)
    if one is not None and one.state is CheckpointState.COMPLETE:
        assert (choice.outcome, choice.resume) == (ResumeOutcome.RESUME, one)
        assert choice.is_pinned
        assert choice.aside == every[: every.index(one)]
    else:
        assert not choice.is_pinned


@given(histories())
def test_only_failures_on_healthy_nodes_make_a_checkpoint_suspect(given) -> None:
    every, known = given

    for one in every:
        for attempt in failures_after(one, known):
            assert attempt.end is not None
            assert attempt.end.kind is FailureKind.APPLICATION


@pytest.mark.parametrize("depth", Depth)
@pytest.mark.parametrize("cause", ["", *Cause])
def test_checksums_are_compared_after_a_checkpoint_could_not_be_read(cause, depth) -> None:
    is_damaged = cause == Cause.CHECKPOINT_DAMAGED
    assert depth_after(cause, depth) is (Depth.HASHES if is_damaged else depth)


def test_two_early_failures_make_the_job_resume_from_the_one_before() -> None:
    old, new = saved(100), saved(200)
    once = trust(resumed(2, new, steps=(200, 209)))
    twice = trust(resumed(2, new, steps=(200, 209)), resumed(3, new, steps=(200, 200)))

    assert chosen((new, old), once).resume is new
    choice = chosen((new, old), twice)
    assert (choice.outcome, choice.resume, choice.aside) == (ResumeOutcome.RESUME, old, (new,))
    assert (choice.cost.steps, choice.cost.time) == (100, HOUR)


@pytest.mark.parametrize(
    ("last", "is_counted"), [(209, True), (210, False)], ids=["early", "later"]
)
def test_a_failure_counts_within_the_steps_of_the_policy(last: int, *, is_counted: bool) -> None:
    one = saved(200)

    assert bool(failures_after(one, trust(resumed(2, one, steps=(200, last))))) is is_counted


def test_an_attempt_that_got_further_ends_the_series() -> None:
    one = saved(200)
    early, late = resumed(2, one, steps=(200, 201)), resumed(3, one, steps=(200, 290))

    assert failures_after(one, trust(early, late)) == ()
    assert failures_after(one, trust(late, early)) == (early,)


def test_an_attempt_that_saved_a_newer_one_is_no_evidence() -> None:
    one = saved(200)

    assert not failures_after(one, trust(resumed(2, one, has_saved=True)))
    assert failures_after(one, trust(resumed(2, one)))


def test_the_attempt_that_saved_it_counts_if_it_failed_within_as_many_steps() -> None:
    old, new = saved(100), saved(200)
    for last, is_counted in ((199, False), (200, True), (209, True), (210, False)):
        first = resumed(1, old, steps=(100, last), has_saved=True)
        second = resumed(2, new, steps=(200, 201))
        expected = (first, second) if is_counted else (second,)
        assert failures_after(new, trust(first, second)) == expected
    assert failures_after(old, trust(resumed(1, old, steps=(100, 205), has_saved=True))) == ()


def test_a_later_save_of_the_same_name_is_another_checkpoint() -> None:
    one = saved(200)
    again = replace(one, changed_at=one.changed_at + TICK)

    assert failures_after(again, trust(resumed(2, one))) == ()


def test_an_interrupted_newest_save_costs_nothing() -> None:
    cut, broken, good = (
        saved(300, CheckpointState.INCOMPLETE),
        saved(200, CheckpointState.DAMAGED),
        saved(100),
    )

    assert rollback(good, (cut,)).time == timedelta(0)
    assert rollback(good, (cut, broken)).time == HOUR
    assert rollback(good, (broken,)).steps == 100


def test_a_person_is_asked_beyond_the_limit_and_not_at_it() -> None:
    good, bad = saved(100), saved(200, CheckpointState.DAMAGED)
    for limit, outcome in ((HOUR, ResumeOutcome.RESUME), (HOUR - TICK, ResumeOutcome.ASK)):
        known = trust(policy=CheckpointPolicy(max_rollback=limit))
        choice = chosen((bad, good), known)
        assert (choice.outcome, choice.resume) == (outcome, good)
    for steps, is_far in ((100, False), (99, True), (0, False)):
        policy = CheckpointPolicy(max_rollback_steps=steps)
        assert is_too_far(rollback(good, (bad,)), policy) is is_far


def test_a_suspected_checkpoint_that_an_unverifiable_one_precedes_is_kept() -> None:
    new, old = saved(200), saved(100, CheckpointState.UNKNOWN)
    known = trust(resumed(2, new), resumed(3, new))
    choice = chosen((new, old), known)

    assert (choice.resume, choice.suspected, choice.aside) == (new, (new,), ())


def test_a_tracker_is_set_back_from_a_suspected_checkpoint() -> None:
    new, old = saved(200), saved(100)
    pointer = Pointer(kind=PointerKind.NAMED, file="latest", name=new.name, step=new.step)
    known = trust(resumed(2, new), resumed(3, new))
    choice = choose(survey(new, old, pointer=pointer), Depth.SIZES, None, known)

    assert (choice.resume, choice.repoint, choice.aside) == (old, True, (new,))


def test_the_end_of_an_attempt_is_added_only_to_the_one_before_of_the_same_job() -> None:
    end = AttemptEnd(kind=FailureKind.HARDWARE)
    running = replace(resumed(3, saved(100)), end=None)

    assert with_end((running,), end, "job", 4)[0].end == end
    for job, attempt in (("job", 3), ("other", 4)):
        assert with_end((running,), end, job, attempt) == (running,)
    ended = resumed(3, saved(100))
    assert with_end((ended,), end, "job", 4) == (ended,)


def test_a_repeated_launch_is_recorded_once_and_the_oldest_are_dropped() -> None:
    first = replace(resumed(1, saved(100)), end=None)
    again = replace(first, checkpoint="step-200")

    assert with_attempt((first,), again) == (again,)
    many = tuple(resumed(number, None) for number in range(HISTORY_LIMIT))
    assert with_attempt(many, first) == (*many[1:], first)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("suspect_attempts", -1),
        ("suspect_steps", 0),
        ("max_rollback", -TICK),
        ("max_rollback_steps", -1),
    ],
)
def test_a_setting_out_of_its_range_is_rejected(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=key):
        CheckpointPolicy(**{key: value})  # type: ignore[arg-type]


def diverged(step: int, one: Checkpoint, *, has_saved: bool = True) -> ResumedAttempt:
    """An attempt that resumed from a checkpoint and was stopped for its loss at ``step``."""
    attempt = resumed(1, one, steps=(one.step or 0, step + 5), has_saved=has_saved)
    assert attempt.end is not None
    end = replace(attempt.end, bad_step=step, bad_at=NOW + step / 100 * HOUR)
    return replace(attempt, end=end)


@pytest.mark.parametrize(
    ("step", "poisoned"), [(199, {200, 300}), (200, {200, 300}), (201, {300}), (301, set())]
)
def test_what_was_saved_from_a_bad_step_on_is_poisoned_by_a_single_failure(step, poisoned) -> None:
    known = trust(diverged(step, saved(100)), policy=CheckpointPolicy(suspect_attempts=0))
    every = (saved(300), saved(200), saved(100))

    assert {one.step for one in every if is_suspected(one, known)} == poisoned
    choice = chosen(every, known)
    assert choice.resume == next(one for one in every if one.step not in poisoned)
    assert {one.step for one in choice.aside} == poisoned


def test_without_a_step_in_its_name_the_time_of_a_checkpoint_counts() -> None:
    known = trust(diverged(250, saved(100)), policy=CheckpointPolicy(suspect_attempts=0))

    assert is_suspected(replace(saved(300), step=None), known)
    assert not is_suspected(replace(saved(200), step=None), known)


@pytest.mark.parametrize(("seconds", "poisoned"), [(2, True), (2.001, False)])
def test_a_loss_is_older_than_its_report(seconds: float, poisoned: bool) -> None:
    attempt = diverged(250, saved(100))
    assert attempt.end is not None
    assert attempt.end.bad_at is not None
    at = attempt.end.bad_at - timedelta(seconds=seconds)
    one = replace(saved(200), step=None, changed_at=at)

    assert (
        is_suspected(one, trust(attempt, policy=CheckpointPolicy(suspect_attempts=0))) is poisoned
    )


def test_checkpoints_of_other_attempts_and_released_ones_are_not_poisoned() -> None:
    first = diverged(150, saved(100))
    off = CheckpointPolicy(suspect_attempts=0)
    later = replace(resumed(2, saved(100)), at=NOW + 2.5 * HOUR)

    assert is_suspected(saved(200), trust(first, later, policy=off))
    assert not is_suspected(saved(300), trust(first, later, policy=off))  # saved by attempt 2
    assert not is_suspected(
        saved(200), trust(diverged(150, saved(100), has_saved=False), policy=off)
    )
    put_back = Released(name="step-200", at=NOW + 3 * HOUR)
    history = CheckpointHistory(attempts=(first,), released=(put_back,))
    assert not is_suspected(saved(200), Trust(policy=off, history=history))
