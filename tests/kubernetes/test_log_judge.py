"""The verdict on an attempt, with patterns that are matched for real."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.adapters.kubernetes.jobs.log_judge import LogJudge
from holdfast.adapters.kubernetes.jobs.matcher import LineMatcher
from holdfast.decisions.log_rules import LogRule
from holdfast.testing.fakes import FakeClock

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
FAST = LogRule(name="fast", pattern="step", start_cutoff=9 * SECOND, frequency=2 * SECOND)
SLOW = LogRule(name="slow", pattern="save", start_cutoff=7 * SECOND, frequency=60 * SECOND)
ENDLESS = LogRule(name="endless", pattern="(a+)+$", start_cutoff=SECOND)
ENDLESS_LINE = "a" * 100 + "!"


@pytest.fixture(scope="module")
def matcher() -> Iterator[LineMatcher]:
    matcher = LineMatcher()
    yield matcher
    matcher.close()


def test_lines_count_at_the_time_at_which_they_come(matcher: LineMatcher):
    clock = FakeClock(START)
    judge = LogJudge(matcher, clock, [FAST], START)
    assert judge.due == START + 9 * SECOND

    clock.time += 3 * SECOND
    judge.take(0, ["other", "step 1"])

    assert judge.due == START + 5 * SECOND
    assert judge.hang(START + 5 * SECOND).since == START + 3 * SECOND


def test_the_earliest_of_all_rules_is_looked_at(matcher: LineMatcher):
    assert LogJudge(matcher, FakeClock(START), [FAST, SLOW], START).due == START + 7 * SECOND
    assert LogJudge(matcher, FakeClock(START), [], START).due is None


def test_a_rule_that_is_too_slow_is_told_once_and_never_matched_again(matcher: LineMatcher):
    judge = LogJudge(matcher, FakeClock(START), [ENDLESS, SLOW], START)

    for _ in range(2):
        judge.take(0, [ENDLESS_LINE])

    (rejected,) = judge.rejected
    assert (rejected.key, rejected.value) == ("log rule endless", "(a+)+$")
    assert judge.due == START + 7 * SECOND
    assert judge.hang(START + SECOND) is None


def test_of_a_rule_that_is_no_pattern_both_patterns_are_told(matcher: LineMatcher):
    wrong = LogRule(name="w", pattern="a", stop_pattern="(", start_cutoff=SECOND)

    judge = LogJudge(matcher, FakeClock(START), [wrong], START)

    assert [one.value for one in judge.rejected] == ["a ("]
    assert judge.due is None
