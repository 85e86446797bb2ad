"""Planned work, waits and severity: each has its own shape, word and color."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from console_server import Site
from playwright.sync_api import Page, expect
from written_runs import node, remediation

from holdfast.adapters.local.store import LocalStore
from holdfast.model.events import AttemptStarted, BreakerTripped, NodeAgentSilent
from holdfast.model.health import Remedy
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase
from holdfast.model.names import Reason
from holdfast.model.nodes import NodeRecord, Phase

now = cache(lambda: datetime.now(UTC))  # at its first use: modules are imported long before


def ago(minutes: float) -> datetime:
    return now() - timedelta(minutes=minutes)


def attempt(number: int, begun: float, ended: float) -> AttemptRecord:
    failure = Failure(
        kind=FailureKind.HARDWARE, reason="Xid", at=ago(ended + 1), node=node(1), evidence="x"
    )
    return AttemptRecord(
        attempt=number,
        placement=(node(1),),
        started_at=ago(begun),
        running_at=ago(begun - 1),
        stopped_at=ago(ended),
        failure=failure,
    )


@pytest.fixture(scope="module")
def waiting(console: Site) -> LocalStore:
    """A job that waited 6 minutes for its second attempt, and waits 20 for the third by now."""
    attempts = (attempt(1, 60, 50), attempt(2, 44, 20))
    store = console.runs.add(
        "waiting", nodes=(1, 2, 3), ranks=(1,), attempts=attempts, attempt=2,
        started_at=ago(60), phase=JobPhase.WAITING, phase_since=ago(20),
    )  # fmt: skip
    asked = replace(remediation(2, Remedy.REBOOT), reason=Reason.REQUESTED_REBOOT)
    record = NodeRecord(phase=Phase.QUARANTINED, phase_since=ago(3), remediation=asked)
    store.put_node(node(2), record)
    store.add_event(ago(60), AttemptStarted(job="waiting", attempt=1, nodes=(node(1),)))
    store.add_event(ago(2), NodeAgentSilent(node=node(3), since=ago(4)))
    store.add_event(ago(1), BreakerTripped(reason="too many at once"))
    return store


def test_requested_work_that_waits_is_not_shown_as_a_fault(waiting, visit) -> None:
    page = visit("ada", "fleet")
    item = page.locator(".asked li", has_text=node(2))
    expect(item).to_contain_text("Planned work waits")
    expect(item).to_contain_text("nothing is wrong with the node")
    expect(item.locator(".badge")).to_have_class("badge tint-planned")
    expect(page.locator(".chip", has_text="Faulty").locator(".amount")).to_have_text("0")


def test_the_timeline_shows_each_wait_for_nodes(waiting, visit) -> None:
    page = visit("ada", "job/waiting")
    expect(page.locator(".key", has_text="Waiting for nodes").last).to_be_visible()
    waits = page.locator(".timeline .part-waiting")
    expect(waits).to_have_count(2)
    expect(waits.first.locator("title")).to_have_text("Waiting for nodes: 6m")
    expect(waits.last.locator("title")).to_contain_text("Waiting for nodes: 20m")
    assert is_within(page)


def is_within(page: Page) -> bool:
    """Whether all parts of the timeline are inside it."""
    script = """() => {
      const frame = document.querySelector(".timeline");
      const wide = Number(frame.getAttribute("width"));
      const parts = [...frame.querySelectorAll("rect")];
      const edge = (one) => Number(one.getAttribute("x")) + Number(one.getAttribute("width"));
      return parts.every((one) => edge(one) <= wide);
    }"""
    found: bool = page.evaluate(script)
    return found


def test_events_show_their_severity(waiting, visit) -> None:
    page = visit("ada", "job/waiting")
    rows = page.locator("table", has_text="Level").locator("tbody tr")
    expect(rows).to_have_count(3)
    levels = [
        (row.locator(".badge").inner_text(), row.locator(".mark").get_attribute("class"))
        for row in rows.all()
    ]

    assert levels == [
        ("Error", "mark look-faulty"),
        ("Warning", "mark look-warning"),
        ("Info", "mark look-joining"),
    ]
