from datetime import timedelta

import pytest

from holdfast.adapters.notices.attention import REFUSALS, Attention
from holdfast.adapters.notices.settings import FOR_PEOPLE
from holdfast.model.events import (
    BreakerTripped,
    Event,
    JobFinished,
    NodeQuarantined,
    NodeReleased,
    NodeReplaced,
    NodeVanished,
    RepairOrdered,
    RepairOverdue,
    RepairPostponed,
)
from holdfast.model.jobs import JobPhase

SECOND = timedelta(seconds=1)


def postponed(node: str = "n1", error: str = "no") -> RepairPostponed:
    return RepairPostponed(node=node, remedy="replace", error=error, retry_after=SECOND)


def overdue(node: str = "n1") -> RepairOverdue:
    return RepairOverdue(node=node, remedy="replace", waited=SECOND)


ORDERED = RepairOrdered(node="n1", remedy="replace", reason="x")
RELEASED = NodeReleased(node="n1", after="x")
TRIPPED = BreakerTripped(reason="5 of 6 nodes turned faulty")


def reported(*events: Event) -> list[int]:
    """Numbers of the events that people are told of."""
    attention = Attention(FOR_PEOPLE)
    return [number for number, event in enumerate(events) if attention.wants(event)]


def test_an_order_that_is_refused_again_and_again_is_reported_once() -> None:
    refusals = [postponed(error=f"request {number}") for number in range(20)]

    assert reported(*refusals) == [REFUSALS - 1]


def test_a_provider_that_is_busy_for_a_moment_is_nobody_s_trouble() -> None:
    assert reported(postponed(), postponed(), ORDERED, postponed(), postponed(), ORDERED) == []


def test_nodes_are_reported_each_for_itself() -> None:
    assert reported(*[postponed(node) for _ in range(4) for node in ("n1", "n2")]) == [4, 5]


@pytest.mark.parametrize("over", [RELEASED, NodeReplaced(node="n1", successor="n2")])
def test_an_overdue_repair_is_reported_once_until_it_is_over(over: Event) -> None:
    assert reported(overdue(), ORDERED, overdue(), overdue("n2"), over, overdue()) == [0, 3, 5]


def test_a_node_that_vanished_is_reported_and_its_troubles_are_over() -> None:
    vanished = NodeVanished(node="n1", reason="x")

    assert reported(overdue(), vanished, overdue()) == [0, 1, 2]


def test_what_happens_anew_is_reported_anew() -> None:
    failed = JobFinished(job="a", outcome=JobPhase.FAILED, reason="r")

    assert reported(TRIPPED, TRIPPED, failed, failed) == [0, 1, 2, 3]


def test_what_goes_by_itself_is_not_reported() -> None:
    fault = NodeQuarantined(node="n1", reason="x", remedy="replace", message="m")
    done = JobFinished(job="a", outcome=JobPhase.SUCCEEDED, reason="r")

    assert reported(fault, ORDERED, RELEASED, done) == []
