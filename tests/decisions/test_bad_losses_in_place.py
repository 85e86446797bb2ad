"""Which checkpoints are suspected after ranks restarted in place for a bad loss."""

from dataclasses import replace
from datetime import timedelta

from decisions.test_checkpoint_trust import NOW, saved
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.checkpoint_trust import (
    HISTORY_LIMIT,
    Trust,
    is_suspected,
    with_attempt,
    with_bad_loss,
)
from holdfast.model.checkpoints import AttemptEnd, CheckpointHistory, ResumedAttempt
from holdfast.model.jobs import FailureKind

END = AttemptEnd(
    kind=FailureKind.APPLICATION, has_saved=True, bad_step=300, bad_at=saved(300).changed_at
)


def suspected(attempts: tuple[ResumedAttempt, ...]) -> list[int]:
    trust = Trust(history=CheckpointHistory(attempts=attempts))
    return [step for step in (100, 200, 300, 400, 500) if is_suspected(saved(step), trust)]


def attempt(at: int, number: int = 1, end: AttemptEnd | None = None) -> ResumedAttempt:
    time = NOW + timedelta(hours=at) + timedelta(minutes=1)
    return ResumedAttempt(job="llm", attempt=number, at=time, end=end)


def test_checkpoints_from_the_bad_step_on_are_suspected_without_a_record_of_attempts() -> None:
    assert suspected(with_bad_loss((), END, "llm")) == [300, 400, 500]


def test_only_the_last_attempt_that_runs_has_saved_bad_checkpoints() -> None:
    earlier = attempt(0, end=AttemptEnd(kind=FailureKind.HARDWARE))
    attempts = with_bad_loss((earlier, attempt(3, 2)), END, "llm")

    assert attempts[:-1] == (earlier,)
    assert suspected(attempts) == [400, 500]


def test_checkpoints_that_the_next_round_saves_are_trusted() -> None:
    attempts = with_attempt(with_bad_loss((), END, "llm"), attempt(4))

    assert suspected(attempts) == [300, 400]


@given(st.lists(st.integers(0, 5), max_size=4), st.booleans())
def test_a_repeated_verification_changes_nothing(ended: list[int], is_running: bool) -> None:
    history = tuple(attempt(at, at, AttemptEnd()) for at in sorted(ended))
    history += (attempt(6, 6),) if is_running else ()
    once = with_bad_loss(history, END, "llm")

    assert once[-1].end == END
    assert with_bad_loss(once, END, "llm") == once
    begun = with_attempt(once, attempt(7, 7))
    assert with_bad_loss(begun, END, "llm") == begun
    assert with_bad_loss(begun, replace(END, bad_step=301), "llm") != begun


def test_the_history_is_bounded() -> None:
    many = tuple(attempt(0, number, AttemptEnd()) for number in range(HISTORY_LIMIT))
    assert len(with_bad_loss(many, END, "llm")) == HISTORY_LIMIT
