"""When a job hangs, by the lines it prints and does not print."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.log_rules import (
    Comparison,
    Hit,
    JobLogRule,
    RuleState,
    after_line,
    due,
    first_hang,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)
MATCH, OTHER, STOP = Hit(is_match=True), Hit(is_match=False), Hit(is_match=False, is_stop=True)

spans = st.timedeltas(TICK, timedelta(days=3))
hits = st.sampled_from((MATCH, OTHER))


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def a_rule(**changes) -> JobLogRule:
    return JobLogRule(name="Steps", pattern=".*loss", **changes)


def after(
    rule: JobLogRule, *lines: tuple[timedelta, Hit], rank: int = 0, state: RuleState | None = None
) -> RuleState:
    """The state after lines, each given as its time after the start and what it is."""
    state = state or RuleState()
    for offset, hit in lines:
        state = after_line(rule, state, hit, rank=rank, line="loss 0.5", at=START + offset)
    return state


def hang(rule: JobLogRule, state: RuleState, known_for: timedelta | None):
    known_until = None if known_for is None else START + known_for
    return first_hang([(rule, state)], START, known_until)


def numbers(rule: JobLogRule, *values: float, rank: int = 0, state: RuleState | None = None):
    lines = [(seconds(n), Hit(is_match=True, number=value)) for n, value in enumerate(values)]
    return after(rule, *lines, rank=rank, state=state)


@given(spans)
def test_a_job_that_never_prints_hangs_when_its_start_is_over_and_not_before(cutoff):
    rule = a_rule(start_cutoff=cutoff, frequency=TICK)

    assert hang(rule, RuleState(), cutoff - TICK) is None
    found = hang(rule, RuleState(), cutoff)

    assert (found.reason, found.since) == ("LogStateHanging_Steps", START)


@given(spans, spans)
def test_a_job_that_falls_silent_hangs_since_its_last_line(offset, frequency):
    rule = a_rule(frequency=frequency, start_cutoff=TICK)
    state = after(rule, (offset, MATCH))

    assert hang(rule, state, offset + frequency - TICK) is None
    assert hang(rule, state, offset + frequency).since == START + offset


@given(st.lists(st.tuples(spans, hits), max_size=20), spans)
def test_nothing_is_a_hang_while_lines_come_often_enough(steps, frequency):
    rule = a_rule(start_cutoff=frequency, frequency=frequency)
    state, at = RuleState(), timedelta(0)
    for pause, hit in steps:
        at += min(pause, frequency - TICK) if state.matched_at or hit is MATCH else timedelta(0)
        assert hang(rule, state, at) is None
        state = after(rule, (at, MATCH), state=state)


def test_without_a_limit_silence_is_no_hang():
    never = timedelta(days=365)
    only_start = a_rule(start_cutoff=seconds(60))
    only_pace = a_rule(frequency=seconds(60))

    assert hang(only_start, after(only_start, (seconds(1), MATCH)), never) is None
    assert hang(only_pace, RuleState(), never) is None


def test_silence_that_nobody_has_listened_to_is_no_hang():
    assert hang(a_rule(start_cutoff=seconds(1)), RuleState(), None) is None


@given(st.lists(hits), spans)
def test_lines_that_do_not_match_are_silence(lines, frequency):
    rule = a_rule(start_cutoff=frequency, frequency=frequency, fault_on_match=False)

    state = after(rule, *((frequency, OTHER) for _ in lines))

    assert state == RuleState()


@given(st.lists(st.sampled_from((MATCH, OTHER, STOP))), st.booleans())
def test_a_rule_is_over_with_the_line_that_stops_it(lines, faults):
    rule = a_rule(start_cutoff=TICK, frequency=TICK, stop_pattern="done", fault_on_match=faults)
    stopped = after(rule, (timedelta(0), STOP))

    state = after(rule, *((seconds(1), hit) for hit in lines), state=stopped)

    assert state == stopped
    assert hang(rule, state, timedelta(days=365)) is None


def test_a_line_that_stops_and_matches_only_stops():
    rule = a_rule(fault_on_match=True, stop_pattern="x")
    both = Hit(is_match=True, is_stop=True)

    assert hang(rule, after(rule, (seconds(1), both)), seconds(2)) is None


def test_a_fault_in_the_log_is_a_failure_at_once_and_for_good():
    rule = a_rule(fault_on_match=True, start_cutoff=seconds(1), stop_pattern="x")

    assert hang(rule, RuleState(), timedelta(days=1)) is None  # its other limits do not count
    state = after(rule, (seconds(3), MATCH), rank=7)
    found = hang(rule, state, None)

    assert found.since == START + seconds(3)
    assert found.evidence == "node rank 7 printed: loss 0.5"
    for later in (STOP, MATCH):
        assert hang(rule, after(rule, (seconds(4), later), state=state), None) == found


@pytest.mark.parametrize(
    ("comparison", "slow"),
    [("gt", [2]), ("gteq", [1, 2]), ("lt", [0]), ("lteq", [0, 1]), ("eq", [1])],
)
def test_numbers_are_compared_as_the_rule_says(comparison: str, slow: Sequence[float]):
    rule = a_rule(threshold=1, comparison=Comparison(comparison))

    found = [value for value in (0, 1, 2) if hang(rule, numbers(rule, value), None)]

    assert found == slow


@given(st.integers(1, 30), st.lists(st.booleans(), max_size=60))
def test_so_many_slow_numbers_in_a_row_are_a_hang(limit, slow):
    rule = a_rule(threshold=80, comparison=Comparison.LTEQ, data_points=limit)
    state = numbers(rule, *(80.0 if one else 80.1 for one in slow))
    runs = "".join("s" if one else "." for one in slow)

    assert (hang(rule, state, None) is not None) == ("s" * limit in runs)


def test_numbers_of_one_rank_do_not_count_for_another():
    rule = a_rule(threshold=80, comparison=Comparison.LT, data_points=2)
    state = numbers(rule, 1.0, rank=0)

    assert hang(rule, numbers(rule, 1.0, rank=1, state=state), None) is None
    found = hang(rule, numbers(rule, 1.0, rank=0, state=state), None)
    assert (
        found.evidence
        == "node rank 0 printed 2 in a row that are lt 80 or not finite, last: loss 0.5"
    )


def test_what_is_no_number_neither_counts_nor_ends_a_row():
    rule = a_rule(threshold=80, comparison=Comparison.LT, data_points=2)
    state = numbers(rule, 1.0)

    state = after(rule, (seconds(1), Hit(is_match=True, number=None)), state=state)

    assert hang(rule, state, None) is None
    assert hang(rule, numbers(rule, 1.0, state=state), None) is not None


NOT_FINITE = st.sampled_from((math.nan, math.inf, -math.inf))


@given(NOT_FINITE, st.sampled_from(list(Comparison)), st.floats(-1e9, 1e9))
def test_a_number_that_is_not_finite_fails_every_threshold(number, comparison, threshold):
    rule = a_rule(threshold=threshold, comparison=comparison, data_points=2)

    assert hang(rule, numbers(rule, number), None) is None
    assert hang(rule, numbers(rule, number, number), None).evidence.startswith("node rank 0")


@given(st.lists(st.tuples(spans, NOT_FINITE), max_size=20), spans, spans)
def test_a_number_that_is_not_finite_is_never_progress(steps, first, frequency):
    rule = a_rule(start_cutoff=first, frequency=frequency)
    lost = [(offset, Hit(is_match=True, number=number)) for offset, number in steps]

    never = after(rule, *lost)
    assert due(rule, never, START) == START + first
    once = after(rule, (timedelta(0), Hit(is_match=True, number=0.5)), *lost)
    assert due(rule, once, START) == START + frequency


def test_the_evidence_of_a_job_whose_loss_is_nan_shows_that():
    rule = a_rule(frequency=seconds(60))
    state = after(rule, (seconds(1), Hit(is_match=True, number=0.5)))
    state = after_line(
        rule, state, Hit(is_match=True, number=math.nan), rank=0, line="loss: nan", at=START
    )

    assert hang(rule, state, seconds(61)).evidence == (
        "no line matched '.*loss' with a finite number (last: loss: nan) for 1m, last at "
        "2026-01-01T00:00:01Z"
    )
    state = after(rule, (seconds(2), Hit(is_match=True, number=0.4)), state=state)
    assert "nan" not in hang(rule, state, seconds(62)).evidence


def test_a_slow_job_is_not_a_silent_one():
    rule = a_rule(threshold=80, comparison=Comparison.LT, data_points=9, frequency=seconds(5))
    state = numbers(rule, 1.0)

    assert due(rule, state, START) == START + seconds(5)


@given(st.permutations([(seconds(1), 0), (seconds(2), 1), (seconds(3), 2)]))
def test_the_order_in_which_ranks_are_read_does_not_matter(lines):
    rule = a_rule(frequency=seconds(10))
    state = RuleState()
    for at, rank in lines:
        state = after(rule, (at, MATCH), rank=rank, state=state)

    assert due(rule, state, START) == START + seconds(13)


def test_the_first_rule_that_is_broken_is_the_reason():
    fine, silent = a_rule(frequency=seconds(1)), a_rule(start_cutoff=seconds(1))
    fault = JobLogRule(name="Fault", pattern="x", fault_on_match=True)
    states = [
        (fine, RuleState()),
        (silent, RuleState()),
        (fault, after(fault, (seconds(1), MATCH))),
    ]

    assert first_hang(states, START, START).reason == "LogStateHanging_Fault"
    assert first_hang(states, START, START + seconds(1)).reason == "LogStateHanging_Steps"


def test_a_line_is_shown_in_part_and_without_control_characters():
    rule = a_rule(fault_on_match=True)
    line = "\x1b[2J" + "x" * 9999
    state = after_line(rule, RuleState(), MATCH, rank=0, line=line, at=START)

    assert state.hang.evidence == "node rank 0 printed: [2J" + "x" * 196


def test_a_loss_that_is_nan_is_no_progress_without_a_group_either():
    rule = a_rule(frequency=seconds(60))
    lost = after_line(
        rule, RuleState(), Hit(is_match=True), rank=0, line="step 7 loss=nan", at=START
    )

    assert lost.matched_at is None
    assert lost.not_finite == "step 7 loss=nan"
    found = after_line(rule, lost, Hit(is_match=True), rank=0, line="step 8 loss=0.5", at=START)
    assert found.matched_at == START


@given(
    st.lists(st.tuples(spans, spans, st.booleans()), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), spans), max_size=6),
    spans,
    spans,
)
def test_a_hang_stays_the_same_while_other_rules_find_theirs(rules, lines, known_for, later):
    judged = {
        a_rule(start_cutoff=cutoff, frequency=pause, fault_on_match=faults, data_points=n + 1):
            RuleState()
        for n, (cutoff, pause, faults) in enumerate(rules)
    }  # fmt: skip
    for index, offset in sorted(lines, key=lambda one: one[1]):
        rule = [*judged][index % len(judged)]
        judged[rule] = after(rule, (offset, MATCH), state=judged[rule])
    begun = max([known_for, *(offset for _, offset in lines)])

    found = first_hang(judged.items(), START, START + begun)

    if found is not None:
        assert first_hang(judged.items(), START, START + begun + later) == found
