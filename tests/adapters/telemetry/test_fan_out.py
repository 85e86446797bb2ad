from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.adapters.telemetry.fan_out import FanOut
from holdfast.model.errors import BackendError
from holdfast.model.health import Fault, Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason
from holdfast.model.report import NodeReport

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
FAULT = Fault(
    family="xid",
    condition=Condition.NVIDIA_TERMINATE,
    reason=Reason.XID_REPLACE,
    severity=Severity.FATAL,
    remedy=Remedy.REPLACE,
    message="Xid 74",
    since=NOW,
)
HEALTHY = NodeReport(node="n1", boot_id="b1", sequence=1, reported_at=NOW)
FAULTY = replace(HEALTHY, sequence=2, faults=(FAULT,))


class Journal:
    """A sink and an observer that note in one list what they were told."""

    def __init__(self) -> None:
        self.notes: list[tuple] = []
        self.kept: NodeReport | None = None
        self.fails = False

    def last(self) -> NodeReport | None:
        return self.kept

    def publish(self, report: NodeReport) -> None:
        if self.fails:
            raise BackendError("full")
        self.notes.append(("published", report))
        self.kept = report

    def heartbeat(self, boot_id: str, sequence: int) -> None:
        self.notes.append(("heartbeat", boot_id, sequence))

    def changed(self, before: NodeReport | None, report: NodeReport) -> None:
        self.notes.append(("changed", before, report))

    def heartbeat_sent(self) -> None:
        self.notes.append(("beat",))


def test_the_conditions_are_part_of_what_everybody_gets_and_the_observers_get_it_first() -> None:
    journal = Journal()
    sink = FanOut(journal, [journal])

    sink.publish(FAULTY)
    sink.heartbeat("b1", 3)

    (_, before, shown), (_, published), heartbeat, beat = journal.notes
    assert before is None
    assert shown == published == sink.last()
    assert {one.type for one in published.conditions if one.status == "True"} == {
        Condition.NVIDIA_TERMINATE
    }
    assert (heartbeat, beat) == (("heartbeat", "b1", 3), ("beat",))


def test_observers_are_shown_a_change_once_though_publishing_is_tried_again() -> None:
    journal = Journal()
    sink = FanOut(journal, [journal])
    sink.publish(HEALTHY)
    journal.fails = True
    with pytest.raises(BackendError):
        sink.publish(FAULTY)
    journal.fails = False
    journal.notes.clear()

    sink.publish(FAULTY)

    (_, before, shown), _ = journal.notes
    assert before.faults == shown.faults == (FAULT,)


def test_an_agent_that_starts_again_goes_on_with_the_conditions_of_the_one_before() -> None:
    journal = Journal()
    FanOut(journal, []).publish(FAULTY)
    held = journal.kept
    assert held is not None

    again = FanOut(journal, [journal])
    again.publish(replace(FAULTY, sequence=1, reported_at=NOW + timedelta(hours=1)))

    (_, before, shown) = journal.notes[-2]
    assert before == held
    assert shown.conditions == held.conditions


def test_a_suspect_that_counts_no_longer_is_not_waited_for() -> None:
    journal = Journal()
    other = replace(FAULT, code=79)
    notices = tuple(
        Finding(
            family=one.family,
            condition=one.condition,
            reason=one.reason,
            severity=one.severity,
            remedy=Remedy.NONE,
            message="waiting",
            observed_at=NOW,
            code=one.code,
        )
        for one in (FAULT, other)
    )
    journal.kept = replace(HEALTHY, suspects=(FAULT, other), notices=notices)

    last = FanOut(journal, (), is_discarded=lambda fault: fault == FAULT).last()

    assert last is not None
    assert (last.suspects, last.notices) == ((other,), notices[1:])
