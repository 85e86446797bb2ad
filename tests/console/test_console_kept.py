"""What a page keeps: its connection, the reader's place, the day, and all within its frame."""

import json
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from console_server import Site
from playwright.sync_api import Page, expect
from written_runs import node, remediation

from holdfast.model.health import Remedy
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind
from holdfast.model.nodes import NodeRecord, Phase

now = cache(lambda: datetime.now(UTC))  # at its first use: modules are imported long before
STREAM = "text/event-stream"
SEEN = """(isHidden) => {
  Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
"""What a browser does with a page that comes to the front, or goes to the back."""

LONG = "of-the-pretraining-cluster-of-somebody-who-likes-names"
REASON = "NvidiaGpuXidErrorPendingReplacement"


@pytest.fixture(scope="module")
def old_job(console: Site) -> str:
    """A job that runs since three days ago and has failed twice, each time with a long word."""
    attempts = tuple(
        AttemptRecord(
            attempt=number,
            placement=(node(1), node(2)),
            started_at=now() - timedelta(days=4 - number),
            running_at=now() - timedelta(days=4 - number, minutes=-1),
            stopped_at=now() - timedelta(days=4 - number, hours=-23),
            failure=Failure(
                kind=FailureKind.HARDWARE,
                reason=REASON,
                at=now() - timedelta(days=4 - number, hours=-22),
                node=node(number),
                evidence="RuntimeError: " + "x" * 200,
            ),
        )
        for number in (1, 2)
    )
    console.runs.add(
        "old", nodes=(1, 2), ranks=(1, 2), attempt=3, attempts=attempts, running_at=now(),
        started_at=now() - timedelta(hours=20),
    )  # fmt: skip
    return "old"


def test_a_page_that_nobody_sees_leaves_its_connection_to_others(console, visit) -> None:
    store = console.runs.add("hidden", nodes=(1, 2), ranks=(1,))
    page = visit("ada", "fleet?q=hidden")
    expect(page.locator(".shown").last).to_contain_text("2 ")
    expect(page.locator(".status")).to_have_text("Live")
    with page.expect_event("requestfailed", lambda one: one.url.endswith("/console/live")):
        page.evaluate(SEEN, True)
    expect(page.locator(".status")).to_have_text("Connecting…")
    record = NodeRecord(
        phase=Phase.REBOOTING, phase_since=now(), remediation=remediation(2, Remedy.REBOOT)
    )
    store.put_node(node(2), record)
    page.evaluate(SEEN, False)

    expect(page.locator(".status")).to_have_text("Live")
    expect(page.locator(".urgent li", has_text=node(2)[-6:])).to_contain_text("Rebooting")


def test_what_is_read_again_never_overlaps_and_leaves_the_keyboard_where_it_is(
    old_job, visit
) -> None:
    page = visit("ada", "jobs")
    page.evaluate("""() => {
      const real = window.fetch;
      window.now = window.most = window.calls = 0;
      window.fetch = async (...call) => {
        window.most = Math.max(window.most, ++window.now);
        document.body.dataset.calls = ++window.calls;
        await new Promise((done) => setTimeout(done, 4000));
        window.now -= 1;
        return real(...call);
      };
    }""")
    page.get_by_role("link", name="Goodput", exact=True).click()
    region = page.get_by_role("region", name="By job")
    region.focus()
    expect(page.locator("body")).to_have_attribute("data-calls", "3")

    expect(region).to_be_focused()
    assert page.evaluate("window.most") == 1


def test_the_way_past_the_menu_leads_to_the_page_that_is_open(console, visit) -> None:
    page = visit("ada", "incidents?state=open")
    expect(page.get_by_role("heading", name="Incidents")).to_be_visible()
    page.get_by_role("link", name="Skip to the content").press("Enter")

    expect(page.locator("main#main")).to_be_focused()
    assert page.url.endswith("#/incidents?state=open")


def test_what_happened_on_another_day_is_reported_with_its_day(old_job, visit) -> None:
    page = visit("ada", f"job/{old_job}", locale="en-US", timezone_id="Asia/Tokyo")
    day = (now() - timedelta(days=3) + timedelta(hours=9)).strftime("%b %-d")

    expect(page.locator(".timeline")).to_contain_text(f"{day}, ")
    rows = page.locator("table", has_text="Lost steps").locator("tbody tr")
    expect(rows.last).to_contain_text(f"{day}, ")
    expect(page.locator(".facts").first).to_contain_text("GMT+9")


@pytest.mark.parametrize("wide", [1280, 390])
def test_why_an_attempt_ended_is_seen_without_scrolling_aside(old_job, visit, wide) -> None:
    page = visit("ada", f"job/{old_job}", viewport={"width": wide, "height": 844})
    expect(page.locator(".cause").first).to_be_visible()

    right = page.evaluate("document.querySelector('.cause').getBoundingClientRect().right")
    assert 0 < right <= wide


@pytest.mark.parametrize("wide", [1280, 390])
def test_long_names_stay_within_the_page(visit, wide) -> None:
    page = visit("ada", "jobs", viewport={"width": wide, "height": 844})
    snapshot = f"event: snapshot\ndata: {json.dumps(long_names())}\n\n"
    page.route("**/console/live", lambda route: route.fulfill(body=snapshot, content_type=STREAM))
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(1)
    found = {"jobs": beyond(page)}
    page.goto(page.url.replace("#/jobs", "#/incidents"))
    expect(page.locator("tbody tr")).to_have_count(1)
    found["incidents"] = beyond(page)
    page.goto(page.url.replace("#/incidents", "#/fleet"))
    expect(page.locator(".shown").last).to_have_text("2 nodes")
    found["fleet"] = beyond(page)

    assert found == {"jobs": [], "incidents": [], "fleet": []}
    expect(page.locator(".urgent")).to_contain_text("repairs paused: vendor")


def beyond(page: Page) -> list[str]:
    """Parts of the page that are wider than the room they have."""
    found: list[str] = page.evaluate(
        "[document.documentElement, ...document.querySelectorAll('.scrolled')]"
        ".filter((one) => one.scrollWidth > one.clientWidth + 1)"
        ".map((one) => `${one.className} ${one.scrollWidth}`)"
    )
    return found


def long_names() -> dict[str, object]:
    current = now().isoformat()
    names = [f"ip-10-0-0-{number}.{LONG}.compute.internal" for number in (1, 2)]
    nodes = {
        f"prod {name}": {
            "name": name, "fleet": "prod", "group": f"{LONG}-{LONG}-{name[:11]}",
            "look": "faulty", "phase": "quarantined", "since": current, "reason": REASON,
            "remedy": "replace", "pause_reason": "vendor", "requested": "reboot",
        }
        for name in names
    }  # fmt: skip
    job = {
        "name": f"llm-{LONG}-{LONG}", "phase": "running", "is_active": True, "since": current,
        "started_at": current, "nodes": 2, "attempt": 1, "hardware_retries": 1, "max_retries": 10,
        "app_retries": 0, "max_app_retries": 3, "reason": "waits for nodes",
    }  # fmt: skip
    incident = {
        "id": "one", "fleet": "prod", "node": names[0], "provider_id": "i-1", "reason": REASON,
        "remedy": "replace", "message": "", "detected_at": current, "quarantined_at": current,
        "state": "quarantined", "successor": "", "jobs": [{"job": job["name"]}],
    }  # fmt: skip
    tables = {
        "fleets": {"prod": {"name": "prod", "is_active": True}},
        "nodes": nodes,
        "jobs": {job["name"]: job},
        "incidents": {"prod one": incident},
        "notes": {},
    }
    return {"now": current, "tables": tables}
