"""Matching log lines with patterns of people, good and bad."""

import math
import signal
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.host.pattern_matcher import PatternMatcher
from holdfast.decisions.log_rules import Hit, JobLogRule
from holdfast.kit.match_worker import TOO_SLOW
from holdfast.model.errors import BackendError


@pytest.fixture(scope="module")
def matcher() -> Iterator[PatternMatcher]:
    matcher = PatternMatcher()
    yield matcher
    matcher.close()


def a_rule(pattern: str = ".*loss", **changes) -> JobLogRule:
    return JobLogRule(name="r", pattern=pattern, **changes)


def test_a_line_matches_from_its_beginning_and_may_go_on(matcher: PatternMatcher):
    lines = ["loss 1", "a loss", "los"]

    assert matcher.match([a_rule("loss"), a_rule()], lines) == [
        [(0, Hit(is_match=True))],
        [(0, Hit(is_match=True)), (1, Hit(is_match=True))],
    ]


def test_the_first_group_is_the_number_if_it_is_one(matcher: PatternMatcher):
    pattern = r"loss (\S+)( \w+)?"
    (found,) = matcher.match([a_rule(pattern, threshold=1.0)], ["loss 0.5 x", "loss none"])
    (without,) = matcher.match([a_rule(pattern)], ["loss 0.5 x", "loss none"])
    (lost,) = matcher.match([a_rule(pattern)], ["loss nan", "loss -Infinity"])
    (no_group,) = matcher.match([a_rule("loss")], ["loss nan"])

    assert found == [(0, Hit(is_match=True, number=0.5)), (1, Hit(is_match=True))]
    assert without == found
    assert [math.isfinite(hit.number) for _, hit in lost] == [False, False]
    assert no_group == [(0, Hit(is_match=True))]


def test_a_group_that_took_no_part_holds_no_number(matcher: PatternMatcher):
    assert matcher.match([a_rule(r"loss( \d+)?", threshold=1.0)], ["loss"]) == [
        [(0, Hit(is_match=True))]
    ]


def test_lines_that_end_a_rule_are_reported_beside_those_that_match(matcher: PatternMatcher):
    (found,) = matcher.match([a_rule(stop_pattern="done|loss 9")], ["done", "loss 9", "other"])

    assert found == [
        (0, Hit(is_match=False, is_stop=True)),
        (1, Hit(is_match=True, is_stop=True)),
    ]


@pytest.mark.parametrize("bad", ["(", "a{9999999999}", "(" * 500 + ")" * 500, "(?P<x>a)(?P<x>b)"])
def test_what_is_no_pattern_is_reported_and_other_rules_are_matched(
    matcher: PatternMatcher, bad: str
):
    rules = [a_rule(bad), a_rule(), a_rule(stop_pattern=bad)]

    first, second, third = matcher.match(rules, ["loss"])

    assert isinstance(first, str)
    assert second == [(0, Hit(is_match=True))]
    assert third == first


def test_a_threshold_needs_a_group(matcher: PatternMatcher):
    (found,) = matcher.match([a_rule(threshold=1.0)], [])

    assert found == r"a group that holds the number, such as (\d+)"


@pytest.mark.parametrize(
    "endless", ["(a+)+$", "(?:.*)*x", ".*.*.*.*x", "(?=(.*a){20}b)", "(a|aa)+$", r"(a*)*\1b"]
)
def test_a_pattern_that_takes_for_ever_is_given_up_and_other_rules_are_matched(
    matcher: PatternMatcher, endless: str
):
    line = "a" * 4000 + "!"

    found = matcher.match([a_rule(endless), a_rule("a"), a_rule(stop_pattern=endless)], [line])

    assert found == [TOO_SLOW, [(0, Hit(is_match=True))], TOO_SLOW]


def test_the_limit_holds_where_the_parent_waits_for_its_signals():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    matcher = PatternMatcher()
    try:
        assert matcher.match([a_rule("(a+)+$")], ["a" * 4000 + "!"]) == [TOO_SLOW]
    finally:
        matcher.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@given(st.lists(st.text(max_size=200), max_size=20))
def test_any_line_can_be_matched(matcher: PatternMatcher, lines: list[str]):
    (found,) = matcher.match([a_rule("(?s).*")], lines)

    assert [index for index, _ in found] == list(range(len(lines)))


def test_a_process_that_dies_is_followed_by_another(matcher: PatternMatcher):
    matcher.match([a_rule()], [])
    matcher._process.kill()  # as the kernel does when memory is short

    with pytest.raises(BackendError, match="the process that matches log rules failed"):
        matcher.match([a_rule()], [])
    assert matcher.match([a_rule()], ["loss"]) == [[(0, Hit(is_match=True))]]


def test_after_the_end_nothing_is_matched():
    matcher = PatternMatcher()
    matcher.match([a_rule()], [])
    matcher.close()

    with pytest.raises(BackendError, match="matches log rules has stopped"):
        matcher.match([a_rule()], [])
