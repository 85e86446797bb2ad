"""Progress of a job over its attempts: what is learned, and when a hang is suspected."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.step_progress import (
    StepProgress,
    after_look,
    suspected_hang,
    suspicious_at,
)
from holdfast.decisions.step_times import MIN_PAUSES, StallLimits

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
LIMITS = StallLimits(factor=10, floor=60 * SECOND, start=timedelta(hours=1))


def attempt(
    progress: StepProgress, began_at: datetime, start_s: float, steps: int = MIN_PAUSES + 1
) -> tuple[StepProgress, datetime]:
    """An attempt with a step each second after its start, and the time of the last one."""
    progress = after_look(progress, began_at=began_at, step=None, now=began_at)
    now = began_at + timedelta(seconds=start_s)
    for step in range(steps):
        progress = after_look(progress, began_at=began_at, step=step, now=now + step * SECOND)
    return progress, now + (steps - 1) * SECOND


def test_a_pause_beyond_what_was_learned_is_suspected_not_before():
    progress, last = attempt(StepProgress(), T0, 30)
    at = last + 60 * SECOND

    assert suspicious_at(progress, LIMITS) == at
    assert suspected_hang(progress, LIMITS, at - TICK) is None
    assert suspected_hang(progress, LIMITS, None) is None
    found = suspected_hang(progress, LIMITS, at)
    assert found is not None
    assert (found.since, found.step) == (last, MIN_PAUSES)
    assert found.evidence == (
        f"no new step for 1m, last step {MIN_PAUSES}; the longest pause between two steps was 1s"
    )


def test_a_new_step_ends_the_suspicion_and_a_repeated_one_does_not():
    progress, last = attempt(StepProgress(), T0, 30)
    late = last + timedelta(hours=2)
    same = after_look(progress, began_at=T0, step=MIN_PAUSES, now=late)
    moved = after_look(progress, began_at=T0, step=MIN_PAUSES + 1, now=late)

    assert same == progress
    assert suspected_hang(moved, LIMITS, late) is None


def test_pauses_are_kept_across_attempts():
    progress, _ = attempt(StepProgress(), T0, 30)
    again, last = attempt(progress, T0 + timedelta(days=1), 30, steps=1)

    assert suspicious_at(again, LIMITS) == last + 60 * SECOND


def test_the_first_start_has_a_generous_limit():
    progress = after_look(StepProgress(), began_at=T0, step=None, now=T0)
    at = T0 + timedelta(hours=1)

    assert suspected_hang(progress, LIMITS, at - TICK) is None
    found = suspected_hang(progress, LIMITS, at)
    assert found is not None
    assert (found.since, found.step) == (T0, None)
    assert (
        found.evidence == "no step was reported within 1h of the start, or the job reports no steps"
    )
    unlimited = StallLimits(start=timedelta(0))
    assert suspected_hang(progress, unlimited, T0 + timedelta(days=9)) is None
    learned, _ = attempt(progress, T0, 30)
    again = after_look(learned, began_at=T0 + SECOND, step=None, now=T0)
    assert suspicious_at(again, unlimited) is not None


def test_a_start_much_longer_than_earlier_ones_is_suspected():
    later = T0 + timedelta(days=1)
    progress, _ = attempt(StepProgress(), T0, 30)
    again = after_look(progress, began_at=later, step=None, now=later)
    at = later + 150 * SECOND

    assert suspected_hang(again, LIMITS, at - TICK) is None
    found = suspected_hang(again, LIMITS, at)
    assert found is not None
    assert found.evidence == (
        "no step was reported within 2m30s of the start; the longest start before took 30s"
    )


def test_a_short_start_before_does_not_lower_the_limit_below_the_floor():
    later = T0 + timedelta(days=1)
    progress, _ = attempt(StepProgress(), T0, 1)
    again = after_look(progress, began_at=later, step=None, now=later)

    assert suspicious_at(again, LIMITS) == later + LIMITS.floor


def test_a_step_that_is_there_at_the_first_look_is_no_start():
    progress = after_look(StepProgress(), began_at=T0, step=900, now=T0 + timedelta(days=1))

    assert progress.starts == ()
    assert progress.step_at == T0 + timedelta(days=1)


def test_a_set_timeout_counts_from_the_first_step_on():
    limits = StallLimits(timeout=20 * SECOND, floor=60 * SECOND)
    progress, last = attempt(StepProgress(), T0, 5, steps=1)

    found = suspected_hang(progress, limits, last + 20 * SECOND)
    assert found is not None
    assert found.evidence == "no new step for 20s, last step 0"
    assert suspected_hang(progress, limits, last + 20 * SECOND - TICK) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 50), st.integers(0, 900))))
def test_no_sequence_of_looks_makes_a_progressing_job_suspect(looks):
    """Whatever was seen, right after a new step nothing is suspected."""
    progress, now = StepProgress(), T0
    for attempt_number, step, pause in looks:
        now += timedelta(seconds=pause)
        began_at = T0 - timedelta(days=attempt_number)
        before = progress
        progress = after_look(progress, began_at=began_at, step=step, now=now)
        if progress.step_at == now and progress != before:
            assert suspected_hang(progress, LIMITS, now) is None
