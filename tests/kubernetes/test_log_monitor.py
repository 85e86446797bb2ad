"""The verdict on an attempt, with patterns that are matched for real."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.adapters.kubernetes.jobs.log_monitor import LogMonitor
from holdfast.adapters.kubernetes.jobs.pattern_matcher import PatternMatcher
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
