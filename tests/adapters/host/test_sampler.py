import os
import select
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import chain, count, repeat

import pytest

from holdfast.adapters.host.sampler import TIMEOUT, Memory, Reading, Sampler, SourceSchedule
from holdfast.detectors.contract import Sample
from holdfast.model.errors import BackendError

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
OFTEN = timedelta(0)
ONCE = timedelta(hours=1)


class StillClock:
    def now(self) -> datetime:
        return NOW


def sampler(
    every: timedelta = OFTEN,
    memory: Memory | None = None,
    timeout: timedelta = TIMEOUT,
    **reads: Callable[[], Reading],
) -> Sampler:
    plans = {
        name: SourceSchedule(read=read, every=every, timeout=timeout)
        for name, read in reads.items()
    }
    return Sampler(plans, memory or {}, clock=StillClock())


def next_of(sampler: Sampler, name: str) -> Sample:
    deadline = time.monotonic() + 20
    while name not in (samples := sampler.take()):
        assert time.monotonic() < deadline
        select.select([sampler.fileno()], [], [], 0.05)
    return samples[name]


def counting() -> Callable[[], Reading]:
    numbers = count()
    return lambda: Reading(text="t", values={"n": str(next(numbers))})


def test_a_sample_carries_the_values_of_the_one_before_it() -> None:
    taken = sampler(a=counting())

    first, second = next_of(taken, "a"), next_of(taken, "a")

    assert (first.name, first.text, first.taken_at, first.error) == ("a", "t", NOW, "")
    assert (dict(first.before), dict(first.values)) == ({}, {"n": "0"})
    assert (dict(second.before), dict(second.values)) == ({"n": "0"}, {"n": "1"})


def test_what_a_source_holds_open_is_let_go_of_with_the_sampler() -> None:
    closed: list[str] = []
    plan = SourceSchedule(read=counting(), every=ONCE, close=lambda: closed.append("a"))
    taken = Sampler({"a": plan}, {}, clock=StillClock())
    next_of(taken, "a")

    assert closed == []
    taken.close()
    assert closed == ["a"]


def test_what_was_there_once_is_remembered() -> None:
    readings = chain([Reading(values={"x": ""})], repeat(Reading(values={"y": ""})))
    taken = sampler(a=lambda: next(readings))

    next_of(taken, "a")

    assert [next_of(taken, "a").seen for _ in range(3)] == [{"x", "y"}] * 3


@pytest.mark.parametrize("error", [BackendError("broken"), OSError(5, "broken")])
def test_a_source_that_fails_says_why_and_keeps_what_was_known(error: Exception) -> None:
    def fail() -> Reading:
        if next(turns) == 1:
            raise error
        return Reading(values={"n": "7"})

    turns = count()
    taken = sampler(a=fail)

    next_of(taken, "a")
    failed, again = next_of(taken, "a"), next_of(taken, "a")

    assert (failed.error, dict(failed.values)) == ("broken", {})
    assert dict(again.before) == {"n": "7"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_source_with_a_bug_is_an_error_and_is_read_again() -> None:
    def fail() -> Reading:
        if next(turns) < 1:
            raise RuntimeError
        return Reading(text="good")

    turns = count()
    taken = sampler(a=fail)

    assert "unexpected error" in next_of(taken, "a").error
    assert next_of(taken, "a").text == "good"
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and "_read" in thread.name:
            thread.join(20)  # what it raised is collected within this test


def test_a_source_that_hangs_holds_up_no_other_and_is_reported_once() -> None:
    released = threading.Event()
    calls = []

    def hang() -> Reading:
        calls.append(1)
        released.wait(20)
        return Reading(text="late")

    taken = sampler(timeout=timedelta(seconds=1), slow=hang, quick=counting())

    assert not taken.has_all
    assert "no result after" in next_of(taken, "slow").error
    assert taken.has_all
    for _ in range(5):
        assert set(next_of(taken, "quick").values) == {"n"}
        assert "slow" not in taken.take()
    assert len(calls) == 1
    released.set()
    assert next_of(taken, "slow").text == "late"


def test_a_source_is_read_when_it_is_due_only() -> None:
    taken = sampler(every=ONCE, a=counting())

    next_of(taken, "a")
    time.sleep(0.05)

    assert taken.take() == {}
    assert taken.has_all


def test_the_next_agent_of_the_boot_goes_on_where_this_one_ended() -> None:
    first = sampler(a=counting())
    next_of(first, "a")

    second = sampler(memory=first.memory, a=counting())
    sample = next_of(second, "a")

    assert (dict(sample.before), sample.seen) == ({"n": "0"}, {"n"})


@pytest.mark.parametrize("memory", [{"a": 1}, {"a": {}}, {"a": {"before": 1, "seen": 2}}])
def test_a_damaged_memory_is_none(memory: Memory) -> None:
    assert dict(next_of(sampler(memory=memory, a=counting()), "a").before) == {}


def test_a_sampler_may_be_closed_at_once_when_all_samples_are_there(monkeypatch) -> None:
    """A thread whose sample was taken when another one woke us may still be about to wake us."""
    wake, failed = os.eventfd_write, []

    def late(fd: int, value: int) -> None:
        if threading.current_thread().name == "slow":
            time.sleep(0.1)
        wake(fd, value)

    def slow() -> Reading:
        threading.current_thread().name = "slow"
        return Reading(text="t", values={})

    monkeypatch.setattr(os, "eventfd_write", late)
    monkeypatch.setattr(threading, "excepthook", failed.append)
    taken = sampler(
        every=ONCE, slow=slow, fast=lambda: time.sleep(0.05) or Reading(text="t", values={})
    )
    while not taken.has_all:
        taken.take()

    taken.close()

    time.sleep(0.2)
    assert failed == []
