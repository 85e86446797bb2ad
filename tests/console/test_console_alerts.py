"""The state of the alerts on the first page."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from page_checks import violations
from playwright.sync_api import expect
from written_runs import node, remediation

from holdfast.model.health import Remedy
from holdfast.model.jobs import JobPhase
from holdfast.model.nodes import Breaker, NodeRecord, Phase


def ago(minutes: float) -> datetime:
    return datetime.now(UTC) - timedelta(minutes=minutes)


def test_alerts_fire_and_end_on_the_open_page(console, visit) -> None:
    page = visit("ada", "fleet")
    card = page.locator(".alerts")
    expect(card).to_contain_text("none firing")

    store = console.runs.add("llm", nodes=(1, 2, 3, 4, 5, 6), ranks=(1, 2))
    slow = replace(remediation(3), opened_at=ago(150))
    store.put_node(
        node(3), NodeRecord(phase=Phase.REPLACING, phase_since=ago(140), remediation=slow)
    )
    store.put_breaker(Breaker(tripped_at=ago(2), reason="too many at once"))
    rows = card.locator("li")
    expect(rows).to_have_count(2)
    expect(card).to_contain_text("2 firing")
    expect(rows.first).to_contain_text("Critical")
    expect(rows.first).to_contain_text("HoldfastBreakerOpen")
    expect(rows.last).to_contain_text("HoldfastRepairSlow")
    expect(rows.last.get_by_role("link")).to_have_attribute("href", f"#/node/llm/{node(3)}")

    reboot = replace(remediation(4, Remedy.REBOOT), opened_at=ago(1))
    fresh = NodeRecord(phase=Phase.REBOOTING, phase_since=ago(1), remediation=reboot)
    store.put_node(node(4), fresh)
    expect(card).to_contain_text("2 firing, 1 pending")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("HoldfastRepairSlow")
    store.put_breaker(Breaker())
    expect(card).to_contain_text("1 firing, 1 pending")
    rows.first.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Current repair")).to_be_visible()


def test_all_rules_are_listed_with_their_state(console, visit) -> None:
    store = console.runs.add("waits", nodes=(11, 12), ranks=(11,))
    _, job, _ = store.jobs()["waits"]
    store.put_job("waits", replace(job, phase=JobPhase.WAITING, phase_since=ago(45)))
    page = visit("ada", "fleet")
    card = page.locator(".alerts")
    expect(card.get_by_role("link", name="waits")).to_be_visible()
    card.locator("summary").click()
    rules = card.locator("tbody tr")
    expect(rules).to_have_count(14)
    expect(rules.filter(has_text="HoldfastJobWaits")).to_contain_text("firing")
    expect(rules.filter(has_text="HoldfastNoLeader")).to_contain_text("in Prometheus only")
    expect(rules.filter(has_text="HoldfastJobFailed")).to_contain_text("inactive")
    expect(rules.filter(has_text="HoldfastRepairSlow")).to_contain_text("2h")
    assert violations(page) == []
