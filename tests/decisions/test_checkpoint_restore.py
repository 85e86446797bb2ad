"""Laws of the copies that are kept, and of those that are restored."""

from dataclasses import replace
from datetime import timedelta

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decisions.checkpoint_choice import Choice, ResumeOutcome, choose
from holdfast.decisions.checkpoint_copies import (
    RetentionPolicy,
    expired_copies,
    is_trusted,
    missing_copies,
    preferred,
)
from holdfast.decisions.checkpoint_restore import (
    RestorePlan,
    cost,
    needs_restore,
    plan_restore,
    prefers_copy,
)
from holdfast.decisions.checkpoint_trust import CheckpointPolicy, Trust, is_suspected, is_too_far
from holdfast.model.checkpoint_copies import CheckpointCopy
from holdfast.model.checkpoints import (
    AttemptEnd,
    Checkpoint,
    CheckpointHistory,
    CheckpointState,
    Depth,
    Pointer,
    PointerKind,
    ResumedAttempt,
    Survey,
)
from holdfast.model.jobs import FailureKind
from holdfast.model.set_aside import SUSPECTED, SetAside
from tests.ports.builders import NOW

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
POLICIES = st.builds(
    RetentionPolicy,
    keep=st.integers(1, 4),
    max_age=st.none() | st.sampled_from([timedelta(microseconds=1), 2 * HOUR]),
)


def saved(step: int, state: CheckpointState = CheckpointState.COMPLETE) -> Checkpoint:
    """A checkpoint of each 100 steps, which take an hour."""
    return Checkpoint(
        name=f"step-{step}",
        step=step,
        is_ended=True,
        changed_at=NOW + step / 100 * HOUR - DAY,
        state=state,
        depth=Depth.SIZES,
    )


def copied(one: Checkpoint, nan: tuple[str, ...] = ()) -> CheckpointCopy:
    return CheckpointCopy(
        name=one.name,
        step=one.step,
        format="f",
        saved_at=one.changed_at,
        copied_at=NOW,
        files=(),
        changed_at=one.changed_at,
        nan=nan,
    )


def failed(number: int, one: Checkpoint, bad_step: int | None = None) -> ResumedAttempt:
    """An attempt that failed at once; or one that saved, after a bad loss in ``bad_step``."""
    return ResumedAttempt(
        job="j",
        attempt=number,
        at=one.changed_at,
        checkpoint=one.name,
        saved_at=one.changed_at,
        newest_at=one.changed_at,
        end=AttemptEnd(
            kind=FailureKind.APPLICATION, has_saved=bad_step is not None, bad_step=bad_step
        ),
    )


@st.composite
def histories(draw: st.DrawFn) -> Trust:
    """Failures soon after checkpoints, bad losses, and checkpoints that were set aside."""
    every = [saved(step) for step in (100, 200, 300, 400, 500)]
    attempts: list[ResumedAttempt] = []
    for one in draw(st.lists(st.sampled_from(every), max_size=4)):
        bad = draw(st.none() | st.sampled_from([150, 300]))
        attempts.append(failed(len(attempts) + 1, one, bad))
    aside = tuple(
        SetAside(name=one.name, path="/a", why="", at=NOW, state=state, saved_at=one.changed_at)
        for one in draw(st.lists(st.sampled_from(every), max_size=1))
        for state in draw(st.sampled_from([(SUSPECTED,), ("damaged",)]))
    )
    days = draw(st.sampled_from([timedelta(0), 2 * HOUR]))
    return Trust(
        policy=CheckpointPolicy(max_rollback=days),
        history=CheckpointHistory(attempts=tuple(attempts), aside=aside),
    )


COPIES = st.lists(
    st.builds(
        copied,
        st.sampled_from([100, 200, 300, 400, 500]).map(saved),
        st.sampled_from([(), (), ("weights: w",)]),
    ),
    unique_by=lambda copy: copy.name,
)
SURVEYS = st.builds(
    lambda steps, states, pointer: Survey(
        folder="/c",
        format="f" if steps else "",
        checkpoints=tuple(
            saved(step, state) for step, state in zip(sorted(steps)[::-1], states, strict=False)
        ),
        pointer=pointer,
    ),
    st.sets(st.sampled_from([100, 200, 300, 400, 500, 600])),
    st.lists(
        st.sampled_from(
            [CheckpointState.COMPLETE, CheckpointState.DAMAGED, CheckpointState.INCOMPLETE]
        ),
        min_size=6,
        max_size=6,
    ),
    st.sampled_from(
        [
            Pointer(),
            Pointer(kind=PointerKind.ABSENT, file="latest"),
            Pointer(kind=PointerKind.NAMED, file="latest", text="200", name="step-200", step=200),
        ]
    ),
)


@settings(max_examples=examples(500))
@given(COPIES, POLICIES, histories())
def test_retention_never_deletes_the_last_good_copy(
    copies: list[CheckpointCopy], policy: RetentionPolicy, trust: Trust
) -> None:
    deleted = expired_copies(copies, policy, NOW, trust)
    kept = [copy for copy in copies if copy not in deleted]
    good = [copy for copy in copies if is_trusted(copy, trust)]

    assert bool(kept) == bool(copies)
    assert len(kept) <= policy.keep
    if good:
        newest = max(good, key=lambda copy: copy.saved_at)
        assert newest in kept
    if policy.max_age is None:
        assert [copy for copy in good if copy in kept] == [
            copy
            for copy in good
            if copy in sorted(good, key=lambda each: each.saved_at)[-policy.keep :]
        ], "a suspected copy pushes no good one out"
    assert expired_copies(kept, policy, NOW, trust) == ()


@settings(max_examples=examples(500))
@given(COPIES, SURVEYS, POLICIES, histories())
def test_no_suspected_checkpoint_is_copied_and_nothing_is_copied_to_be_deleted(
    copies: list[CheckpointCopy], survey: Survey, policy: RetentionPolicy, trust: Trust
) -> None:
    missing = missing_copies(survey.checkpoints, copies, policy, NOW, trust)
    assert not any(is_suspected(one, trust) for one in missing)
    new = [copied(one) for one in missing]
    untrusted = {copy.name for copy in new if not is_trusted(copy, trust)}
    deleted = expired_copies([*copies, *new], policy, NOW, trust)
    assert not {copy.name for copy in new} & {copy.name for copy in deleted} - untrusted


def planned(
    survey: Survey, copies: list[CheckpointCopy], trust: Trust
) -> tuple[Choice, RestorePlan | None]:
    choice = choose(survey, Depth.SIZES, None, trust)
    if not needs_restore(choice.outcome, trust.history) and not prefers_copy(choice):
        return choice, None
    return choice, plan_restore(survey, choice, copies, trust)


@settings(max_examples=examples(1000))
@given(COPIES, SURVEYS, histories())
def test_only_trusted_copies_within_the_limit_are_restored_newest_first(
    copies: list[CheckpointCopy], survey: Survey, trust: Trust
) -> None:
    choice, plan = planned(survey, copies, trust)
    if plan is None:
        return
    assert all(is_trusted(copy, trust) for copy in (*plan.candidates, *plan.too_old))
    times = [copy.saved_at for copy in plan.candidates]
    assert times == sorted(times, reverse=True)
    assert all(one.is_broken for one in plan.aside)
    present = {one.name for one in survey.checkpoints if one not in plan.aside}
    assert not present & {copy.name for copy in plan.candidates}
    if choice.resume is None:
        for copy in plan.candidates:
            assert not is_too_far(cost(copy, survey, trust), trust.policy)
        free = [copy for copy in copies if copy.name not in present and is_trusted(copy, trust)]
        assert set(plan.candidates) | set(plan.too_old) == set(free)
    if choice.outcome is ResumeOutcome.ASK and choice.resume is not None:
        assert all(copy.saved_at > choice.resume.changed_at for copy in plan.candidates)


@settings(max_examples=examples(1000))
@given(COPIES, SURVEYS, histories())
def test_what_was_restored_is_loaded_whatever_the_pointer_names(
    copies: list[CheckpointCopy], survey: Survey, trust: Trust
) -> None:
    _, plan = planned(survey, copies, trust)
    if plan is None or not plan.candidates:
        return
    copy = plan.candidates[0]
    left = [one for one in survey.checkpoints if one not in plan.aside]
    left.append(saved(copy.step or 0))
    after = replace(
        survey,
        format="f",
        checkpoints=tuple(sorted(left, key=lambda one: one.changed_at, reverse=True)),
    )

    choice = choose(after, Depth.SIZES, None, replace(trust, restored=copy.name))

    assert choice.outcome is ResumeOutcome.RESUME
    assert choice.resume is not None
    if all(
        one.is_broken or is_suspected(one, trust)
        for one in after.checkpoints[: [one.name for one in after.checkpoints].index(copy.name)]
    ):
        assert choice.resume.name == copy.name
        assert not choice.is_pinned


def test_a_copy_within_the_limit_replaces_a_rollback_beyond_it() -> None:
    survey = Survey(
        folder="/c",
        format="f",
        checkpoints=(saved(500, CheckpointState.DAMAGED), saved(100)),
    )
    trust = Trust(policy=CheckpointPolicy(max_rollback=2 * HOUR))
    copies = [copied(saved(step)) for step in (100, 200, 300, 400, 500)]

    choice, plan = planned(survey, copies, trust)

    assert choice.outcome is ResumeOutcome.ASK
    assert plan is not None
    assert [copy.name for copy in plan.candidates] == ["step-500", "step-400", "step-300"]
    assert [copy.name for copy in plan.too_old] == ["step-200"]
    assert [one.name for one in plan.aside] == ["step-500"]


def test_a_good_copy_replaces_a_suspected_checkpoint_that_is_the_only_one() -> None:
    poisoned = replace(saved(500), nan=("weights: w",))
    survey = Survey(folder="/c", format="f", checkpoints=(poisoned,))
    copies = [copied(saved(400)), copied(saved(500), ("weights: w",))]

    choice, plan = planned(survey, copies, Trust())

    assert choice.resume is poisoned
    assert plan is not None
    assert [copy.name for copy in plan.candidates] == ["step-400"]


def test_a_lost_directory_is_not_replaced_by_a_copy_beyond_the_limit() -> None:
    newest = replace(failed(1, saved(500)), end=None)
    trust = Trust(
        policy=CheckpointPolicy(max_rollback=2 * HOUR),
        history=CheckpointHistory(attempts=(newest,)),
    )
    _, plan = planned(
        Survey(folder="/c", format=""), [copied(saved(step)) for step in (200, 300)], trust
    )
    assert plan is not None
    assert [copy.name for copy in plan.candidates] == ["step-300"]
    assert [copy.name for copy in plan.too_old] == ["step-200"]


@given(COPIES, histories())
def test_trusted_copies_come_first(copies: list[CheckpointCopy], trust: Trust) -> None:
    trusted = [is_trusted(copy, trust) for copy in preferred(copies, trust)]
    assert trusted == sorted(trusted, reverse=True)
