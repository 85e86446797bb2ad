"""Events that a loop repeats: the first is reported, the others are counted."""

import itertools
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.repeats import RepeatLimiter
from holdfast.model.events import CallFailed, NodeCheckWaits, RepairDeferred
from tests.ports.builders import NOW
from tests.ports.fakes import FakeEvents

MINUTE = timedelta(minutes=1)


def down(error: str = "down", what: str = "reading the cluster") -> CallFailed:
    return CallFailed(what=what, error=error)


def test_what_is_repeated_is_counted_and_reported_again_after_a_pause() -> None:
    events = FakeEvents()
    repeats = RepeatLimiter(events)

    for second in range(61):
        repeats.emit(down(), NOW + timedelta(seconds=second))

    assert [one.times for one in events.reported] == [1, 60]


def test_what_was_reported_by_a_clock_that_was_ahead_is_reported_again() -> None:
    events = FakeEvents()
    repeats = RepeatLimiter(events)

    for ahead in (timedelta(hours=3), timedelta(0), timedelta(seconds=59)):
        repeats.emit(down(), NOW + ahead)

    assert len(events.reported) == 2


def test_another_error_and_another_subject_are_news_but_other_numbers_are_not() -> None:
    events = FakeEvents()
    repeats = RepeatLimiter(events)

    for event in (
        down("port 1 refused"),
        down("port 2 refused"),
        down("timed out"),
        down("port 3 refused", what="reading the jobs"),
    ):
        repeats.emit(event, NOW)

    assert [one.error for one in events.reported] == [
        "port 1 refused",
        "timed out",
        "port 3 refused",
    ]


def test_a_node_that_waits_again_is_news_and_one_that_still_waits_is_not() -> None:
    events = FakeEvents()
    repeats = RepeatLimiter(events)
    waits = RepairDeferred(node="n-1", why="unavailable-node budget used (1 of 1)")

    repeats.emit(waits, NOW)
    repeats.keep_nodes({"n-1"})
    repeats.emit(waits, NOW)
    assert len(events.reported) == 1

    repeats.keep_nodes(())
    repeats.emit(waits, NOW)
    assert len(events.reported) == 2


def test_a_check_that_waits_for_one_job_after_another_is_reported_once() -> None:
    events = FakeEvents()
    repeats = RepeatLimiter(events)

    for number, word in enumerate(("alpha", "beta", "gamma")):
        waits = NodeCheckWaits(node="n-1", why=f"job {word}")
        repeats.emit(waits, NOW + number * MINUTE)

    assert [one.why for one in events.reported] == ["job alpha"]


@given(gaps=st.lists(st.integers(0, 90), max_size=50))
def test_no_repetition_is_lost_and_none_is_reported_within_the_pause(gaps) -> None:
    events, at = FakeEvents(), NOW
    repeats = RepeatLimiter(events)
    reported = []
    for gap in gaps:
        at += timedelta(seconds=gap)
        before = len(events.reported)
        repeats.emit(down(), at)
        reported += [at] * (len(events.reported) - before)

    assert all(later - earlier >= MINUTE for earlier, later in itertools.pairwise(reported))
    assert sum(one.times for one in events.reported) <= len(gaps)
