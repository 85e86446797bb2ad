"""A queue before something slow: in order, once each, nobody waits, nothing grows for ever."""

import threading
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.notices import outbox
from holdfast.adapters.notices.outbox import Outbox, Refused, TryAgain, singly


@given(st.lists(st.sampled_from(["ok", "refused"]), max_size=30))
@settings(max_examples=30, deadline=None)
def test_all_is_delivered_in_order_but_what_is_refused(kinds) -> None:
    delivered, failures = [], []

    def deliver(item) -> None:
        if item[1] == "refused":
            raise Refused("no")
        delivered.append(item[0])

    box = Outbox("them", singly(deliver), lambda what, why: failures.append(why))
    box.start()
    for number, kind in enumerate(kinds):
        box.put((number, kind))
    box.stop()

    assert delivered == [number for number, kind in enumerate(kinds) if kind == "ok"]
    assert len(failures) == kinds.count("refused")


def test_more_than_it_holds_drops_the_oldest_and_reports_how_many() -> None:
    gate, delivered, failures = threading.Event(), [], []

    def deliver(item) -> None:
        gate.wait()
        delivered.append(item)

    box = Outbox("them", singly(deliver), lambda what, why: failures.append(why))
    box.start()
    box.put(-1)
    while box._waiting:
        time.sleep(0.001)
    for number in range(outbox.CAPACITY + 3):
        box.put(number)
    gate.set()
    box.stop()

    assert delivered == [-1, *range(3, outbox.CAPACITY + 3)]
    assert failures == ["3 older notices were dropped"]


def test_stopping_waits_for_nobody_who_is_away() -> None:
    tried = threading.Event()

    def deliver(item) -> None:
        tried.set()
        raise TryAgain("away", after_s=3600)

    failures: list[str] = []
    box = Outbox("them", singly(deliver), lambda what, why: failures.append(why))
    box.start()
    box.put(1)
    box.put(2)
    tried.wait()
    box.stop()

    assert not box._thread.is_alive()
    assert failures == ["away", "2 notices were not delivered"]


def test_batches_are_as_large_as_they_may_be_and_what_was_left_comes_first() -> None:
    gate, done, batches = threading.Event(), threading.Event(), []

    def deliver(items) -> None:
        gate.wait()
        batches.append(list(items))
        if len(batches) == 2:
            raise TryAgain("busy", left=[1, 3])
        if sum(map(len, batches)) == 14:
            done.set()

    box = Outbox("them", deliver, lambda *_: None, largest=5)
    box.start()
    box.put(0)
    while box._waiting:
        time.sleep(0.001)
    for number in range(1, 12):
        box.put(number)
    gate.set()
    assert done.wait(30)
    box.stop()

    assert batches == [[0], [1, 2, 3, 4, 5], [2, 4, 6, 7, 8], [9, 10, 11]]


def test_of_what_comes_back_to_a_full_queue_the_oldest_are_dropped() -> None:
    gates, tried = [threading.Event(), threading.Event()], threading.Event()
    batches, failures, delivered = [], [], []

    def deliver(items) -> None:
        batches.append(list(items))
        if len(batches) == 2:
            tried.set()
        if len(batches) <= 2:
            gates[len(batches) - 1].wait()
        if len(batches) == 2:
            raise TryAgain("busy")
        delivered.extend(items)

    box = Outbox("them", deliver, lambda what, why: failures.append(why), largest=10)
    box.start()
    box.put(-1)
    while box._waiting:
        time.sleep(0.001)
    for number in range(10):
        box.put(number)
    gates[0].set()
    tried.wait()
    for number in range(10, outbox.CAPACITY + 6):
        box.put(number)
    gates[1].set()
    while len(delivered) < outbox.CAPACITY + 1:
        time.sleep(0.01)
    box.stop()

    assert delivered == [-1, *range(6, outbox.CAPACITY + 6)]
    assert failures == ["busy", "6 older notices were dropped"]
