"""The verdict on an attempt, with patterns that are matched for real."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.adapters.host.pattern_matcher import PatternMatcher
from holdfast.adapters.kubernetes.jobs.log_monitor import LogMonitor
from holdfast.decisions.log_rules import JobLogRule
from holdfast.decisions.loss_faults import LossLimits
from tests.ports.fakes import FakeClock

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FAST = JobLogRule(name="fast", pattern="step", start_cutoff=9 * SECOND, frequency=2 * SECOND)
SLOW = JobLogRule(name="slow", pattern="save", start_cutoff=7 * SECOND, frequency=60 * SECOND)
ENDLESS = JobLogRule(name="endless", pattern="(a+)+$", start_cutoff=SECOND)
ENDLESS_LINE = "a" * 100 + "!"


@pytest.fixture(scope="module")
def matcher() -> Iterator[PatternMatcher]:
    matcher = PatternMatcher()
    yield matcher
    matcher.close()


def test_lines_count_at_the_time_at_which_they_come(matcher: PatternMatcher):
    clock = FakeClock(START)
    monitor = LogMonitor(matcher, clock, [FAST], START, LossLimits())
    assert monitor.due == START + 9 * SECOND

    clock.time += 3 * SECOND
    monitor.take(0, ["other", "step 1"])

    assert monitor.due == START + 5 * SECOND
    assert monitor.hang(START + 5 * SECOND).since == START + 3 * SECOND


def test_the_earliest_of_all_rules_is_looked_at(matcher: PatternMatcher):
    assert (
        LogMonitor(matcher, FakeClock(START), [FAST, SLOW], START, LossLimits()).due
        == START + 7 * SECOND
    )
    assert LogMonitor(matcher, FakeClock(START), [], START, LossLimits()).due is None


def test_a_rule_that_is_too_slow_is_reported_once_and_never_matched_again(matcher: PatternMatcher):
    monitor = LogMonitor(matcher, FakeClock(START), [ENDLESS, SLOW], START, LossLimits())

    for _ in range(2):
        monitor.take(0, [ENDLESS_LINE])

    (rejected,) = monitor.rejected
    assert (rejected.key, rejected.value) == ("log rule endless", "(a+)+$")
    assert monitor.due == START + 7 * SECOND
    assert monitor.hang(START + SECOND) is None


def test_of_a_rule_that_is_no_pattern_both_patterns_are_reported(matcher: PatternMatcher):
    wrong = JobLogRule(name="w", pattern="a", stop_pattern="(", start_cutoff=SECOND)

    monitor = LogMonitor(matcher, FakeClock(START), [wrong], START, LossLimits())

    assert [one.value for one in monitor.rejected] == ["a ("]
    assert monitor.due is None


def line(step: int) -> str:
    return f"step: {step:2}  loss:  2.50000  grad_norm:  1.2000"


def trained(monitor: LogMonitor, clock: FakeClock, steps: int = 30) -> datetime:
    """Let a job log a step every 10 seconds. Returns the time of the last one."""
    for step in range(1, steps + 1):
        clock.time += 10 * SECOND
        monitor.take(0, ["other", line(step)])
    return clock.time


def test_a_job_without_a_new_step_for_much_longer_than_before_seems_to_hang(
    matcher: PatternMatcher,
):
    clock = FakeClock(START)
    monitor = LogMonitor(matcher, clock, [], START, LossLimits())
    monitor.take(0, ["importing"])
    last = trained(monitor, clock)
    at = last + timedelta(minutes=3)
    monitor.take(1, ["a rank that says nothing of steps"])

    assert monitor.suspicious_at == at
    assert monitor.suspected(at - timedelta(microseconds=1)) is None
    assert monitor.suspected(None) is None, "the logs could not be read"
    found = monitor.suspected(at)
    assert (found.since, found.step) == (last, 30)
    assert found.evidence == (
        "no new step for 3m, last step 30; the longest pause between two steps was 10s"
    )
    assert monitor.hang(at) is None

    clock.time = at
    monitor.take(0, [line(31)])
    assert monitor.suspected(at) is None


def test_what_was_learned_of_a_job_holds_for_its_next_attempt(matcher: PatternMatcher):
    clock = FakeClock(START)
    first = LogMonitor(matcher, clock, [], START, LossLimits())
    first.take(0, ["importing"])
    trained(first, clock)
    began = clock.time = START + timedelta(hours=1)
    again = LogMonitor(matcher, clock, [], began, LossLimits(), first.progress)

    assert again.suspected(began) is None
    limit = timedelta(minutes=3)  # 5 x 10 s is less than the floor
    found = again.suspected(began + limit)
    assert found.evidence == (
        "no step was reported within 3m of the start; the longest start before took 10s"
    )


def test_steps_that_a_new_controller_reads_at_once_are_no_start(matcher: PatternMatcher):
    clock = FakeClock(START + timedelta(hours=9))
    monitor = LogMonitor(matcher, clock, [], START, LossLimits())
    monitor.take(0, ["importing", line(900)])

    assert monitor.progress.starts == ()
    assert monitor.suspected(clock.time) is None
