"""Signals of a job that reports no steps: its checkpoints, and the activity of its ranks."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.fallback_signals import (
    FallbackSignals,
    best_suspicion,
    needs_accelerators,
    next_attempt,
    suspected_silence,
)
from holdfast.decisions.job_activity import (
    CONNECTION_RATE,
    CPU_SHARE,
    PORT_RATE,
    AcceleratorUse,
    JobActivity,
    ProcessUse,
    Reading,
    Traffic,
    after_accelerators,
    after_reading,
    rebased,
)
from holdfast.decisions.save_times import NO_SAVE, SaveTimes, after_survey, save_limit
from holdfast.decisions.step_progress import StepProgress, SuspectedHang, after_look
from holdfast.decisions.step_times import MIN_PAUSES, StallLimits

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
TICK = timedelta(microseconds=1)
LIMITS = StallLimits()
PERIOD = 30 * SECOND


def used(cpu_s: float = 1.0, io_bytes: int = 0, process: tuple[int, int] = (7, 70)) -> Reading:
    return {process: ProcessUse(cpu_s=cpu_s, io_bytes=io_bytes)}


def silent(minutes: float, use: AcceleratorUse | None = AcceleratorUse.UNKNOWN) -> FallbackSignals:
    """Ranks whose last activity was at ``T0``, read every 30 seconds since."""
    activity = after_reading(JobActivity(), used(), T0, LIMITS.silence)
    for number in range(1, int(2 * minutes) + 1):
        activity = after_reading(activity, used(), T0 + number * PERIOD, LIMITS.silence)
    if use is not None:
        activity = after_accelerators(activity, use, T0)
    return FallbackSignals(activity=activity)


# Activity


def test_ranks_without_any_activity_for_the_limit_are_suspected_not_before():
    signals, at = silent(9.5), T0 + LIMITS.silence

    assert suspected_silence(signals, at - TICK, LIMITS) is None
    found = suspected_silence(signals, at, LIMITS)
    assert found is not None
    assert (found.since, found.step) == (T0, None)
    assert found.evidence == "no output and no CPU time of the ranks for 10m"


def test_nothing_is_suspected_before_it_was_looked_at_the_accelerators():
    signals, at = silent(9.5, None), T0 + LIMITS.silence

    assert not needs_accelerators(signals, at - TICK, LIMITS)
    assert needs_accelerators(signals, at, LIMITS)
    assert suspected_silence(signals, at, LIMITS) is None
    idle = FallbackSignals(activity=after_accelerators(signals.activity, AcceleratorUse.IDLE, at))
    assert not needs_accelerators(idle, at, LIMITS)
    found = suspected_silence(idle, at, LIMITS)
    assert found is not None
    assert found.evidence == (
        "no output, no CPU time and no accelerator activity of the ranks for 10m"
    )


def test_a_busy_accelerator_is_activity():
    signals, at = silent(9.5, None), T0 + LIMITS.silence
    busy = FallbackSignals(activity=after_accelerators(signals.activity, AcceleratorUse.BUSY, at))

    assert suspected_silence(busy, at + LIMITS.silence - TICK, LIMITS) is None
    assert needs_accelerators(busy, at + LIMITS.silence, LIMITS)


def test_without_a_limit_silence_is_not_suspected():
    unlimited = StallLimits(silence=timedelta(0))

    assert suspected_silence(silent(9.5), T0 + timedelta(days=9), unlimited) is None
    assert not needs_accelerators(silent(9.5, None), T0 + timedelta(days=9), unlimited)


@pytest.mark.parametrize(
    ("before", "after", "is_active"),
    [
        (used(0.0), used(CPU_SHARE * 30), False),
        (used(0.0), used(CPU_SHARE * 30 + 0.01), True),
        (used(io_bytes=5), used(io_bytes=6), True),
        (used(), used() | used(0.3, process=(8, 80)), False),
        (used(), used() | used(0.31, process=(8, 80)), True),
        (used(), used(0.31, process=(7, 71)), True),
        (used() | used(9.0, process=(8, 80)), used(), False),
        (used(), {}, True),
        ({}, used(), True),
    ],
)
def test_what_counts_as_activity_between_two_readings(before, after, is_active):
    """Each process counts by itself, and a reading of no process shows nothing."""
    activity = after_reading(JobActivity(), before, T0, LIMITS.silence)
    activity = after_reading(activity, after, T0 + PERIOD, LIMITS.silence)

    assert activity.active_at == (T0 + PERIOD if is_active else T0)


def traffic(connections: dict[int, int], **ports: int) -> Traffic:
    return Traffic(connections=connections, ports=ports)


LEAST = 30 * CONNECTION_RATE
LEAST_OF_PORT = 30 * PORT_RATE


@pytest.mark.parametrize(
    ("before", "after", "is_active"),
    [
        (traffic({1: 5}), traffic({1: 5 + LEAST}), False),
        (traffic({1: 5}), traffic({1: 6 + LEAST}), True),
        (traffic({1: 5, 2: 0}), traffic({1: 6 + LEAST // 2, 2: LEAST // 2}), True),
        (traffic({}), traffic({3: LEAST}), False),
        (traffic({}), traffic({3: LEAST + 1}), True),
        (traffic({1: LEAST + 1}), traffic({}), False),
        (traffic({1: 2 * LEAST}), traffic({1: 0, 2: LEAST}), False),
        (traffic({}, a=5, b=5), traffic({}, a=5 + LEAST_OF_PORT, b=5 + LEAST_OF_PORT), False),
        (traffic({}, a=5, b=5), traffic({}, a=6 + LEAST_OF_PORT, b=5), True),
        (traffic({}), traffic({}, a=9 * LEAST_OF_PORT), False),
        (traffic({}, a=9 * LEAST_OF_PORT), traffic({}, a=0), False),
        (None, traffic({1: 9 * LEAST}), False),
        (traffic({}), None, False),
    ],
)
def test_traffic_counts_only_above_that_of_ranks_that_hang(before, after, is_active):
    """Of a job by connections, of which new ones count in full, and of each port by itself."""
    activity = after_reading(JobActivity(), used(), T0, LIMITS.silence, before)
    activity = after_reading(activity, used(), T0 + PERIOD, LIMITS.silence, after)

    assert activity.active_at == (T0 + PERIOD if is_active else T0)
    assert activity.traffic == after


counts = st.dictionaries(st.integers(0, 5), st.integers(0, 1 << 40), max_size=3)


@given(counts, counts, st.integers(1, CONNECTION_RATE))
def test_no_heartbeat_below_the_rate_hides_a_hang(opened, closed, rate):
    """Connections that others of the job open, keep and close at a low rate are no activity."""
    activity = after_reading(JobActivity(), used(), T0, LIMITS.silence, traffic(closed | opened))
    kept = dict(opened)
    for number in range(1, 21):
        inode = next(iter(kept), 9)
        kept[inode] = kept.get(inode, 0) + 30 * rate
        at = T0 + number * PERIOD
        activity = after_reading(activity, used(), at, LIMITS.silence, traffic(kept))
    activity = after_accelerators(activity, AcceleratorUse.IDLE, at)

    found = suspected_silence(FallbackSignals(activity=activity), at, LIMITS)
    assert found is not None
    assert found.evidence == (
        "no output, no CPU time, no network traffic and no accelerator activity of the ranks for "
        "10m"
    )


def test_a_reader_that_was_stopped_knows_nothing():
    first = after_reading(JobActivity(), used(), T0, LIMITS.silence)

    late = after_reading(first, used(), T0 + 5 * MINUTE, LIMITS.silence)
    assert late.active_at == T0 + 5 * MINUTE
    in_time = after_reading(first, used(), T0 + 5 * MINUTE - TICK, LIMITS.silence)
    assert in_time.active_at == T0
    short = after_reading(first, used(), T0 + 5 * SECOND - TICK, SECOND)
    assert short.active_at == T0
    assert after_reading(first, used(), T0 + 5 * SECOND, SECOND).active_at == T0 + 5 * SECOND


def test_the_stacks_that_ranks_write_in_an_inspection_are_no_activity():
    activity = rebased(silent(9.5).activity, used(1.5, 4096), T0 + 10 * MINUTE)
    activity = after_reading(activity, used(1.5, 4096), T0 + 11 * MINUTE, LIMITS.silence)

    assert activity.active_at == T0
    found = suspected_silence(FallbackSignals(activity=activity), T0 + 11 * MINUTE, LIMITS)
    assert found is not None


@given(
    st.integers(1, 3600),
    st.lists(st.tuples(st.sampled_from((0, 0.5, 0.9, 1.1, 9)), st.booleans()), max_size=60),
)
def test_silence_is_suspected_exactly_if_no_reading_showed_activity_for_the_limit(limit_s, uses):
    limit = timedelta(seconds=limit_s)
    limits, period = StallLimits(silence=limit), limit / 10
    cpu_s, io_bytes, now = 1.0, 0, T0
    activity, last = after_reading(JobActivity(), used(), T0, limit), T0
    for share, written in uses:
        now += period
        cpu_s += share * CPU_SHARE * period.total_seconds()
        io_bytes += written
        if written or share > 1:
            last = now
        activity = after_reading(activity, used(cpu_s, io_bytes), now, limit)
        if needs_accelerators(FallbackSignals(activity=activity), now, limits):
            activity = after_accelerators(activity, AcceleratorUse.IDLE, now)

        found = suspected_silence(FallbackSignals(activity=activity), now, limits)
        assert (found is not None) == (now - last >= limit)


# Checkpoints


def saved(*seconds: float, floor: timedelta = SECOND, saves: SaveTimes | None = None) -> SaveTimes:
    """Checkpoints that were saved these seconds after ``T0``, seen at once."""
    saves = after_survey(saves or SaveTimes(), NO_SAVE, T0, floor)
    for second in seconds:
        at = T0 + second * SECOND
        saves = after_survey(saves, at, at, floor)
    return saves


FLOOR = StallLimits(floor=SECOND)


def test_a_pause_of_three_times_the_longest_between_two_checkpoints_is_suspected():
    signals = FallbackSignals(saves=saved(10, 70, 120, 180))
    at = T0 + 360 * SECOND

    assert suspected_silence(signals, at - TICK, FLOOR) is None
    found = suspected_silence(signals, at, FLOOR)
    assert found is not None
    assert (found.since, found.step) == (T0 + 180 * SECOND, None)
    assert found.evidence == "no new checkpoint for 3m; the longest time between two was 1m"


def test_two_intervals_teach_nothing():
    assert save_limit(saved(10, 70, 130), SECOND) is None
    assert save_limit(saved(10, 70, 130, 190), SECOND) == 180 * SECOND
    assert save_limit(saved(10, 70, 130, 190), timedelta(hours=1)) == timedelta(hours=1)


def test_changes_within_the_floor_belong_to_one_save():
    """It counts from its begin to that of the next one; silence counts from its end."""
    saves = saved(0, 20, 40, 600, 610, 1200, 1800, 1830, floor=MINUTE)

    assert saves.intervals.pauses == (600.0, 600.0, 600.0)
    assert saves.seen_at == T0 + 1830 * SECOND


def test_a_checkpoint_of_an_earlier_attempt_or_an_older_one_is_no_progress():
    first = after_survey(SaveTimes(), T0, T0 + MINUTE, SECOND)
    assert first.seen_at is None
    again = after_survey(first, T0, T0 + 2 * MINUTE, SECOND)
    older = after_survey(again, T0 - MINUTE, T0 + 3 * MINUTE, SECOND)
    assert older == first


def test_intervals_are_kept_across_attempts_and_count_from_the_first_save():
    signals = next_attempt(FallbackSignals(saves=saved(10, 70, 130, 190)))
    late = T0 + timedelta(days=1)
    assert suspected_silence(signals, late, FLOOR) is None

    saves = after_survey(signals.saves, NO_SAVE, late, SECOND)
    saves = after_survey(saves, late, late, SECOND)
    signals = FallbackSignals(saves=saves)
    assert suspected_silence(signals, late + 180 * SECOND - TICK, FLOOR) is None
    assert suspected_silence(signals, late + 180 * SECOND, FLOOR) is not None


@given(st.lists(st.floats(1, 10_000), max_size=40), st.floats(1, 1000))
def test_no_interval_that_was_seen_before_is_suspicious(intervals, floor_s):
    floor, seconds = timedelta(seconds=floor_s), [0.0]
    for interval in intervals:
        seconds.append(seconds[-1] + interval)
    saves = saved(*seconds, floor=floor)
    limit = save_limit(saves, floor)

    if limit is not None:
        assert limit >= max(floor, saves.intervals.longest)
        signals = FallbackSignals(saves=saves)
        now = T0 + timedelta(seconds=seconds[-1] + max(intervals))
        longest = max(saves.intervals.pauses)
        if max(intervals) < 3 * longest:
            assert suspected_silence(signals, now, StallLimits(floor=floor)) is None


# The best signal


def stepping(count: int) -> StepProgress:
    progress = after_look(StepProgress(), began_at=T0, step=None, now=T0)
    for step in range(count):
        progress = after_look(progress, began_at=T0, step=step, now=T0 + step * SECOND)
    return progress


SILENCE = SuspectedHang(since=T0 + 25 * SECOND, step=None, evidence="silence")


@pytest.mark.parametrize(
    ("steps", "limits", "is_silence"),
    [
        (0, LIMITS, True),
        (1, LIMITS, True),
        (MIN_PAUSES, LIMITS, True),
        (MIN_PAUSES + 1, LIMITS, False),
        (1, StallLimits(timeout=timedelta(hours=9)), False),
        (0, StallLimits(timeout=timedelta(hours=9)), True),
    ],
)
def test_other_signals_count_until_steps_have_taught_enough(steps, limits, is_silence):
    now = T0 + 30 * SECOND

    found = best_suspicion(stepping(steps), SILENCE, limits, now)

    assert (found == SILENCE) == is_silence
    assert best_suspicion(stepping(steps), None, limits, now) is None


def test_a_step_since_ends_the_suspicion_of_a_job_with_few_steps():
    progress, now = stepping(2), T0 + timedelta(minutes=2)
    old = SuspectedHang(since=T0 + SECOND - TICK, step=None, evidence="silence")

    assert best_suspicion(progress, old, LIMITS, now) is None
    at_step = SuspectedHang(since=T0 + SECOND, step=None, evidence="silence")
    assert best_suspicion(progress, at_step, LIMITS, now) == at_step


def test_a_job_with_steps_is_suspected_by_them():
    progress, now = stepping(MIN_PAUSES + 1), T0 + timedelta(hours=1)

    found = best_suspicion(progress, SILENCE, LIMITS, now)

    assert found is not None
    assert found.step == MIN_PAUSES
