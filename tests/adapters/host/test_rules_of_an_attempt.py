"""Log rules of one attempt, with lines that are matched for real."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.host.job_log_rules import JobLogRules
from holdfast.adapters.host.pattern_matcher import PatternMatcher
from holdfast.decisions.log_rules import Comparison, JobLogRule
from holdfast.kit.match_worker import LIMIT_S
from holdfast.model.errors import BackendError

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
STEPS = JobLogRule(name="steps", pattern="step", start_cutoff=9 * SECOND, frequency=SECOND)


@pytest.fixture
def matcher() -> Iterator[PatternMatcher]:
    matcher = PatternMatcher()
    yield matcher
    matcher.close()


def test_a_matcher_that_dies_once_costs_nothing(matcher: PatternMatcher):
    rules = JobLogRules(matcher, [STEPS])
    rules.validate()
    matcher._process.kill()

    rules.take_or_end(0, ["step 1"], at=START + SECOND)

    assert rules.rejected == ()
    assert rules.due(START) == START + 2 * SECOND


def test_a_matcher_that_stays_away_ends_the_rules_and_shows_no_hang(matcher: PatternMatcher):
    rules = JobLogRules(matcher, [STEPS])
    rules.validate()
    matcher.close()

    rules.take_or_end(0, ["step 1"], at=START + SECOND)

    assert not rules.are_given
    assert rules.hang(START, START + timedelta(days=1)) is None
    (rejected,) = rules.rejected
    assert str(rejected).startswith("log rules is 'steps', expected no failure, but the process")
    rules.take_or_end(0, ["step 2"], at=START + SECOND)
    assert len(rules.rejected) == 1


def test_lines_that_were_not_all_matched_were_not_evaluated(matcher: PatternMatcher):
    counted = JobLogRule(
        name="slow", pattern="(\\d+)", threshold=9, comparison=Comparison.LT, data_points=3
    )
    rules = JobLogRules(matcher, [counted])
    rules.validate()
    matcher._process.kill()
    many = ["1", "1", "x" * 4096, *["x" * 4096] * 40]

    with pytest.raises(BackendError):
        rules.take(0, many, at=START)
    rules.take(0, many, at=START)

    assert rules.hang(START, None) is None
    rules.take(0, ["1"], at=START + SECOND, where="rank 3")
    assert rules.hang(START, None).evidence.startswith("rank 3 printed 3 in a row that are lt 9")


@pytest.fixture(scope="module")
def shared() -> Iterator[PatternMatcher]:
    matcher = PatternMatcher()
    yield matcher
    matcher.close()


@given(st.lists(st.integers(0, 9000), max_size=60), st.integers(0, 60))
def test_no_line_is_lost_where_many_are_matched_in_parts(
    shared: PatternMatcher, lengths: list[int], place: int
):
    rules = JobLogRules(shared, [JobLogRule(name="r", pattern="found", fault_on_match=True)])
    lines = ["x" * length for length in lengths]
    lines.insert(place, "found")

    rules.take(5, lines, at=START)

    assert rules.hang(START, None).evidence == "node rank 5 printed: found"


def test_a_pattern_may_take_its_time_for_each_part_of_a_long_log(shared: PatternMatcher):
    slow = JobLogRule(name="slow", pattern="(.*)(.*)z", fault_on_match=True)
    rules = JobLogRules(shared, [slow])

    rules.take(0, ["x" * 200] * 5000, at=START)  # 0.2 ms a line; at most 0.25 s for 64 KiB

    assert rules.rejected == ()


def test_a_pattern_that_takes_for_ever_is_paid_for_once(shared: PatternMatcher):
    endless = JobLogRule(name="endless", pattern="(a+)+$", fault_on_match=True)
    rules = JobLogRules(shared, [endless, STEPS])
    piece = ["a" * 60 + "!", "x" * 4096, *["x" * 4096] * 16]
    began = cpu_s(shared)

    rules.take(0, [*piece * 20, "step 1"], at=START + SECOND)

    assert cpu_s(shared) - began < 10 * LIMIT_S
    assert [one.key for one in rules.rejected] == ["log rule endless"]
    assert rules.due(START) == START + 2 * SECOND


def cpu_s(matcher: PatternMatcher) -> float:
    """CPU time of the process that matches, in seconds."""
    (pid,) = matcher.pids or (None,)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_hang_that_is_proven_outlives_the_matcher(matcher: PatternMatcher):
    fault = JobLogRule(name="fault", pattern="fault", fault_on_match=True)
    rules = JobLogRules(matcher, [STEPS, fault])
    rules.take(2, ["fault"], at=START)
    matcher.close()

    for _ in range(2):
        rules.take_or_end(0, ["step 1"], at=START + SECOND)

    assert rules.hang(START, START + timedelta(days=1)).rank == 2
    assert len(rules.rejected) == 1
