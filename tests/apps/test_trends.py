"""Trends are totals of recorded incidents and attempts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_goodput import FAILED, job

from holdfast.apps.views.goodput import goodput
from holdfast.apps.views.nodes import NodeStatus, node_status
from holdfast.apps.views.trends import Range, trends
from holdfast.model.incidents import Incident
from holdfast.model.nodes import NodeView
from tests.ports.builders import a_record

END = datetime(2026, 1, 10, tzinfo=UTC)
WITHIN = Range(begin=END - timedelta(hours=10), end=END, intervals=10)


def hours(count: float) -> datetime:
    return END - timedelta(hours=count)


FAULT = Incident(
    id="i",
    node="n",
    provider_id="p",
    reason="AgentSilent",
    remedy="reboot",
    detected_at=hours(5),
    quarantined_at=hours(5),
    drained_at=hours(4.5),
    repaired_at=hours(3),
    released_at=hours(2.75),
)


def test_an_incident_counts_in_the_interval_in_which_it_was_detected() -> None:
    planned = replace(FAULT, reason="RebootRequested", detected_at=hours(6))
    found = trends(WITHIN, [(FAULT, True), (planned, True)], [], [])

    rows = found["intervals"]
    assert [row["incidents"] for row in rows] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert [row["planned"] for row in rows] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    assert [row["draining"] for row in rows][5] == pytest.approx(1.0)  # half an hour of two nodes
    assert [row["repairing"] for row in rows][5:8] == pytest.approx([1.0, 2.0, 0.0])
    assert found["incidents"] == 1
    assert found["repair_s"] == found["longest_repair_s"] == 2.25 * 3600


def test_an_incident_of_a_checkpoint_is_no_fault_of_a_node() -> None:
    of_checkpoint = replace(FAULT, node="", provider_id="", job="llm", released_at=None)

    assert trends(WITHIN, [(of_checkpoint, True)], [], []) == trends(WITHIN, [], [], [])


@pytest.mark.parametrize(("is_active", "draining"), [(True, 5.0), (False, 0.0)])
def test_an_open_incident_lasts_until_now_while_it_is_managed(is_active, draining) -> None:
    still = replace(FAULT, drained_at=None, repaired_at=None, released_at=None)
    found = trends(WITHIN, [(still, is_active)], [], [])

    assert sum(row["draining"] for row in found["intervals"]) == pytest.approx(draining)
    assert found["repair_s"] is None


@given(begin=st.floats(-5, 20), spans=st.lists(st.floats(0, 8), min_size=3, max_size=3))
def test_the_time_in_phases_is_that_of_the_incident_within_the_range(begin, spans) -> None:
    at = [hours(begin)]
    for span in spans:
        at.append(at[-1] + timedelta(hours=span))
    one = replace(
        FAULT,
        detected_at=at[0],
        quarantined_at=at[0],
        drained_at=at[1],
        repaired_at=at[2],
        released_at=at[3],
    )
    rows = trends(WITHIN, [(one, True)], [], [])["intervals"]

    phases = ("draining", "repairing", "checking")
    for phase, start, end in zip(phases, at[:-1], at[1:], strict=True):
        clipped = max(timedelta(0), min(end, WITHIN.end) - max(start, WITHIN.begin))
        total = sum(row[phase] for row in rows) * WITHIN.step
        assert abs(total - clipped) < timedelta(milliseconds=1)


def status(name: str, **values) -> NodeStatus:
    return replace(
        node_status(
            NodeView(name=name, provider_id=name, record=a_record(phase_since=hours(9))),
            run="r",
            notices=(),
            incidents=(),
        ),
        **values,
    )


def test_nodes_by_state_add_up_to_all_nodes() -> None:
    nodes = [status("n"), status("other", created_at=hours(4))]
    rows = trends(WITHIN, [(FAULT, True)], nodes, [])["intervals"]

    assert rows[0]["in_service"] == 0.0  # before anything is known
    assert [row["in_service"] for row in rows][1:] == pytest.approx(
        [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.75, 2.0, 2.0]
    )
    out = [row["draining"] + row["repairing"] + row["checking"] for row in rows]
    total = [row["in_service"] + away for row, away in zip(rows, out, strict=True)]
    assert total == pytest.approx([0, 1, 1, 1, 1, 1, 2, 2, 2, 2])


def test_a_replaced_node_counts_until_its_successor_comes() -> None:
    replaced = replace(FAULT, remedy="replace", successor="new")
    rows = trends(WITHIN, [(replaced, True)], [status("new"), status("other")], [])["intervals"]

    assert [row["in_service"] for row in rows][1:] == pytest.approx(
        [2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.75, 2.0, 2.0]
    )


def test_nodes_of_ended_runs_are_in_no_state() -> None:
    rows = trends(WITHIN, [(FAULT, False)], [], [])["intervals"]

    assert {row["in_service"] for row in rows} == {0.0}


def test_goodput_of_the_range_is_that_of_its_intervals() -> None:
    one = goodput(job(FAILED, is_active=False, ended_s=150), END)
    assert one is not None
    within = Range(begin=one.begun_at, end=one.ended_at, intervals=7)

    found = trends(within, [], [], [one])

    assert found["goodput"] == pytest.approx(one.share)
    assert all(0 <= row["goodput"] <= 1 for row in found["intervals"])
    before = Range(begin=hours(1), end=END, intervals=2)
    assert trends(before, [], [], [])["goodput"] is None
