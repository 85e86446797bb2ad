"""The console in a real browser: every page, every button, live."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from console_server import TOKENS, Site, site
from page_checks import keep_picture, violations
from playwright.sync_api import Page, expect
from written_runs import LINE, machine, node, remediation

from holdfast.adapters.local.faults import XID_TEXTS, write_kernel_line, xid_line
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.store import LocalStore
from holdfast.model.events import JobWaits, NodeAgentSilent
from holdfast.model.health import Remedy
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase
from holdfast.model.nodes import Breaker, CheckResult, NodeRecord, PastFault, Phase
from holdfast.model.requests import Request, Verb

now = cache(lambda: datetime.now(UTC))  # at its first use: modules are imported long before
SHOTS = Path(__file__).parents[2] / "build/console"
"""Where pictures of all pages are kept; git ignores it."""

STREAM = "text/event-stream"
EVIL = "<img src=x onerror=alert(1)>"


def ago(minutes: float) -> datetime:
    return now() - timedelta(minutes=minutes)


def short(number: int) -> str:
    return machine(number)


def over(number: int, begun: float, ended: float, kind: FailureKind, reason: str) -> AttemptRecord:
    failure = Failure(
        kind=kind, reason=reason, at=ago(ended + 0.1), node=node(number), evidence=LINE
    )
    return AttemptRecord(
        attempt=number,
        placement=(node(1), node(2)),
        started_at=ago(begun),
        running_at=ago(begun - 0.5),
        stopped_at=ago(ended),
        first_step=100 * (number - 1),
        last_step=100 * number + 20,
        failure=failure,
    )


PAST_ID = f"{node(1)}-20260102T030405.001"


def attempts() -> tuple[AttemptRecord, ...]:
    return (
        over(1, 60, 41, FailureKind.HARDWARE, "NvidiaGpuXidErrorPendingReplacement"),
        over(2, 40, 11, FailureKind.APPLICATION, "ExitCode"),
    )


def past_incident() -> Incident:
    return Incident(
        id=PAST_ID,
        node=node(1),
        provider_id=machine(1),
        reason="NvidiaGpuXidErrorPendingReplacement",
        remedy="replace",
        message=LINE,
        detected_at=ago(41),
        quarantined_at=ago(40.99),
        drained_at=ago(40.5),
        repaired_at=ago(38.5),
        checked_at=ago(37.5),
        released_at=ago(37.4),
        successor=node(2),
        jobs=(AffectedJob(job="llm", attempt=1, stopped_at=ago(41), resumed_at=ago(39), step=120),),
    )


def open_incident() -> Incident:
    return Incident(
        id=remediation(3).incident_id,
        node=node(3),
        provider_id=machine(3),
        reason="AgentSilent",
        remedy="reboot",
        message=EVIL,
        detected_at=ago(2),
        quarantined_at=ago(1.9),
    )


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory) -> Iterator[Site]:
    """Another console, for what would change the counts of that of all."""
    with site(tmp_path_factory.mktemp("elsewhere")) as one:
        yield one


@pytest.fixture(scope="module")
def fleet(console) -> Iterator[LocalStore]:
    """A run of twelve nodes, one in each state and some that are well."""
    store = console.runs.add(
        "llm", nodes=tuple(range(1, 13)), ranks=(1, 2), started_at=ago(60), attempt=3,
        attempts=attempts(), hardware_retries=1, app_retries=1, running_at=ago(9),
    )  # fmt: skip
    store.put_job("llm", replace(store.jobs()["llm"][1], started_at=ago(10)))
    checks = tuple(
        CheckResult(
            passed=days != 2,
            ended_at=ago(days * 1440),
            measured={"nccl_gb_per_s": 60.0 if days == 2 else 180.0 + days},
            bounds={"nccl_gb_per_s": 80.0},
        )
        for days in (4, 3, 2, 1)
    )
    past = (PastFault(opened_at=ago(900), closed_at=ago(890), reason="X", remedy=Remedy.REBOOT),)
    silent = replace(remediation(3, Remedy.REBOOT), reason="AgentSilent")
    phases = {
        3: (Phase.QUARANTINED, silent),
        4: (Phase.REBOOTING, remediation(4, Remedy.REBOOT)),
        5: (Phase.REPLACING, remediation(5)),
        6: (Phase.CHECKING, None),
        7: (Phase.JOINING, None),
        11: (Phase.DRAINING, replace(remediation(11, Remedy.REBOOT), reason="RebootRequested")),
    }
    for number, (phase, goes_on) in phases.items():
        record = NodeRecord(
            phase=phase, phase_since=ago(1.8), remediation=goes_on, checks=checks, history=past
        )
        store.put_node(node(number), record)
    console.runs.report("llm", 8)
    store.hold(node(9), f"vendor {EVIL} (bob)")
    store.put_request(node(10), Request(id="r", verb=Verb.DEEP_CHECK, requested_at=ago(1)))
    replaced = (ago(600), ago(30), ago(20))
    well = NodeRecord(phase=Phase.SCHEDULABLE, phase_since=ago(20), replaced_at=replaced)
    store.put_node(node(12), well)
    store.put(past_incident())
    store.put(open_incident())
    return store


def tile(page: Page, name: str) -> str:
    return page.locator(".tile", has_text=name).locator(".value").inner_text()


def dialog(page: Page, button: str):
    page.locator(".actions").get_by_role("button", name=button, exact=True).click()
    return page.get_by_role("dialog")


# Who comes in


def test_who_has_a_token_comes_in_and_goes_out(fleet, visit) -> None:
    page = visit("")
    page.get_by_label("Token").fill("not a token at all")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown or expired token")
    page.screenshot(path=SHOTS / "login.png")

    page.get_by_label("Token").fill(TOKENS["ada"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    expect(page.locator(".person")).to_have_text("adacan operate")
    page.reload()
    expect(page.locator(".status")).to_have_text("Live")

    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_focused()
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()


def test_who_goes_out_is_out_in_every_tab(fleet, visit) -> None:
    page = visit("ada", "fleet")
    other = page.context.new_page()
    other.goto(page.url)
    for tab in (page, other):
        expect(tab.locator(".status")).to_have_text("Live")
    other.get_by_role("button", name="Log out").click()

    expect(page.get_by_label("Token")).to_be_visible()


def test_who_may_only_look_finds_no_buttons(fleet, visit) -> None:
    fleet.put_breaker(Breaker(tripped_at=ago(1), reason="too many at once"))
    page = visit("bob", f"node/llm/{node(3)}")

    expect(page.get_by_role("heading", name="Conditions")).to_be_visible()
    expect(page.locator(".actions button")).to_have_count(0)
    page.goto(page.url.partition("#")[0] + "#/fleet")
    expect(page.locator(".alarm")).to_contain_text("too many at once")
    expect(page.locator(".alarm button")).to_have_count(0)
    fleet.put_breaker(Breaker())


# The fleet


def test_the_fleet_is_counted_drawn_and_listed(fleet, visit) -> None:
    page = visit("ada", "fleet")

    expect(page.locator(".shown").last).to_have_text("12 nodes")
    counts = [tile(page, name) for name in ("Nodes", "Faulty", "In repair", "Jobs running")]
    assert counts == ["12", "1", "4", "1"]
    replaced = page.locator(".tile", has_text="Replaced")
    expect(replaced.locator(".value")).to_have_text("3")
    expect(replaced).to_contain_text("2 in the last hour")
    urgent = page.locator(".urgent li")
    expect(urgent).to_have_count(4)
    expect(urgent.first).to_contain_text("AgentSilent: reboot")
    asked = page.locator(".asked li")
    expect(asked).to_have_count(1)
    expect(asked).to_contain_text("Repair waits")
    expect(asked.get_by_role("link")).to_have_attribute("href", f"#/node/llm/{node(3)}")
    expect(asked).to_contain_text(f"holdfast nodes reboot {node(3)}")
    chips = page.locator(".chip").all_inner_texts()
    assert [re.sub(r"\s+", " ", chip) for chip in chips] == [
        "Faulty 1", "Warning 1", "Rebooting 1", "Replacing 1", "Checking 1", "Planned 1",
        "Joining 1", "Closed 0", "Healthy 5",
    ]  # fmt: skip


def test_the_tiles_are_in_one_row(fleet, visit) -> None:
    page = visit("ada", "fleet", viewport={"width": 1280 - SCROLL_BAR, "height": 900})
    expect(page.locator(".tile").first).to_be_visible()
    tops = page.locator(".tile").evaluate_all("all => all.map(one => one.offsetTop)")

    assert len(tops) >= 6
    assert len(set(tops)) == 1


def test_a_state_and_a_word_are_searched_for_and_kept_in_the_address(fleet, visit) -> None:
    page = visit("ada", "fleet")
    page.get_by_role("button", name="Rebooting").click()
    expect(page.locator(".shown").last).to_have_text("1 of 12 nodes")
    page.get_by_role("button", name="Rebooting").click()
    page.get_by_label("Search nodes").fill("agentsilent")
    page.get_by_role("button", name="Table").click()

    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(short(3))
    assert page.url.endswith("#/fleet?q=agentsilent&view=table")
    page.reload()
    expect(rows).to_have_count(1)
    page.get_by_label("Search nodes").fill("nothing like it")
    expect(page.locator(".empty").last).to_contain_text("No node matches")


def test_nodes_are_reached_with_the_keyboard_and_the_back_button_returns(fleet, visit) -> None:
    page = visit("ada", "fleet")
    grid = page.get_by_role("application")
    grid.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")

    expect(grid.locator("[role=status]")).to_contain_text(f"{node(3)}, Faulty, AgentSilent")
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", name=short(3))
    expect(heading).to_be_focused()
    assert page.title() == f"{node(3)} · Holdfast"
    page.go_back()
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()


def test_a_node_is_reached_with_the_pointer(fleet, visit) -> None:
    page = visit("ada", "fleet")
    expect(page.locator(".shown").last).to_have_text("12 nodes")
    cells = page.locator("canvas")
    cells.hover(position={"x": 2 * 27 + 10, "y": 12})
    expect(page.locator(".tip")).to_contain_text(short(3))
    cells.click(position={"x": 2 * 27 + 10, "y": 12})

    expect(page.get_by_role("heading", name=short(3))).to_be_visible()


# A node and what can be asked for it


def test_all_about_a_node_is_shown_as_text(fleet, visit) -> None:
    page = visit("ada", f"node/llm/{node(3)}")
    main = page.locator("main")

    expect(main.locator(".progress .now")).to_have_text("quarantined")
    expect(main).to_contain_text("AgentSilent")
    expect(page.get_by_role("img", name="nccl over 4 checks, last 181 GB/s")).to_be_visible()
    expect(main.locator("table", has_text="Measured").locator("tbody tr")).to_have_count(4)
    expect(main.locator("table", has_text="Started").locator("tbody tr")).to_have_count(1)
    page.goto(page.url.replace(node(3), node(9)))
    expect(main).to_contain_text(f"vendor {EVIL} (bob)")
    page.goto(page.url.replace(node(9), node(8)))
    expect(main.locator(".found").first).to_contain_text("NVLink: fatal error")


@pytest.mark.parametrize(
    ("button", "verb"),
    [
        ("Reboot", Verb.REBOOT),
        ("Replace", Verb.REPLACE),
        ("Deep check", Verb.DEEP_CHECK),
        ("Release", Verb.RELEASE),
    ],
)
def test_what_a_button_asks_for_is_recorded_after_a_yes(fleet, visit, button, verb) -> None:
    page = visit("ada", f"node/llm/{node(2)}")
    before = fleet.requests().get(node(2))
    requested = dialog(page, button)
    requested.get_by_role("button", name="Cancel").click()
    expect(page.locator(".actions").get_by_role("button", name=button, exact=True)).to_be_focused()
    assert fleet.requests().get(node(2)) == before

    requested = dialog(page, button)
    if verb is not Verb.RELEASE:
        requested.get_by_label("Wait until no job runs on the node").check()
    requested.get_by_role("button", name=button, exact=True).click()

    expect(page.locator(".notice")).to_contain_text(f"of {node(2)} is requested")
    request = fleet.requests()[node(2)]
    assert (request.verb, request.requested_by) == (verb, "ada")
    assert request.urgency == ("immediate" if verb is Verb.RELEASE else "deferred")
    expect(page.locator("main")).to_contain_text(f"{verb} requested by ada")


def test_a_node_is_held_and_let_go(fleet, visit) -> None:
    page = visit("ada", f"node/llm/{node(11)}")
    requested = dialog(page, "Pause repairs")
    requested.get_by_label("Reason").fill("I am at it")
    requested.get_by_role("button", name="Pause repairs").click()
    expect(page.locator("main")).to_contain_text("I am at it (ada)")
    assert fleet.holds()[node(11)] == "I am at it (ada)"

    dialog(page, "Resume repairs").get_by_role("button", name="Resume repairs").click()
    expect(
        page.locator(".actions").get_by_role("button", name="Pause repairs", exact=True)
    ).to_be_visible()
    assert node(11) not in fleet.holds()


def test_repairs_that_were_stopped_begin_again(fleet, visit) -> None:
    page = visit("ada", "fleet")
    expect(page.locator(".status")).to_have_text("Live")
    fleet.put_breaker(Breaker(tripped_at=ago(1), reason="too many at once"))

    page.locator(".alarm").get_by_role("button").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume repairs").click()

    expect(page.locator(".alarm")).to_have_count(0)
    assert fleet.breaker().tripped_at is None


def test_who_is_out_meanwhile_logs_in_again(fleet, visit) -> None:
    page = visit("ada", f"node/llm/{node(1)}")
    requested = dialog(page, "Reboot")
    page.context.clear_cookies()
    requested.get_by_role("button", name="Reboot").click()

    expect(page.get_by_label("Token")).to_be_focused()
    page.get_by_label("Token").fill(TOKENS["ada"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=short(1))).to_be_visible()


def test_a_node_that_is_not_there_is_reported(fleet, visit) -> None:
    page = visit("ada", "node/llm/nobody")

    expect(page.get_by_role("heading", name="Node not found")).to_be_visible()
    expect(page.locator(".actions button")).to_have_count(0)


# Jobs, incidents, goodput


def test_a_job_is_shown_with_its_attempts_and_what_they_lost(fleet, visit) -> None:
    page = visit("ada", "jobs")
    page.get_by_role("link", name="llm").click()

    expect(page.get_by_role("heading", name="llm")).to_be_visible()
    expect(page.get_by_role("img", name="3 attempts from")).to_be_visible()
    rows = page.locator("table", has_text="Lost steps").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.last).to_contain_text("hardware: NvidiaGpuXidErrorPendingReplacement")
    expect(rows.last).to_contain_text("20")
    expect(page.locator("main")).to_contain_text("2 failures cost")


def test_goodput_adds_up_on_the_page(console, fleet, visit) -> None:
    page = visit("ada", "goodput")
    expect(page.get_by_role("heading", name="Lost time by cause")).to_be_visible()
    reported = console.visitor("ada").call("GET", "/console/goodput").json
    share = reported["jobs"][0]["share"] if len(reported["jobs"]) == 1 else None
    figure = page.locator(".figure strong").inner_text()

    assert re.fullmatch(r"\d+\.\d %", figure)
    assert share is None or abs(float(figure[:-2]) - 100 * share) < 1
    shares = (
        page.locator("table", has_text="Spent").locator("tbody td:last-child").all_inner_texts()
    )
    assert abs(sum(float(text[:-2]) for text in shares) - 100) < 0.5
    causes = page.locator("table", has_text="Kind").locator("tbody th").all_inner_texts()
    assert set(causes) == {"ExitCode", "NvidiaGpuXidErrorPendingReplacement"}


def test_trends_are_those_of_the_chosen_range(fleet, visit) -> None:
    page = visit("ada", "trends")
    expect(page.get_by_role("button", name="7 days")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="24 hours").click()
    expect(page.locator("h2").first).to_have_text("Incidents every 0.8 h")
    assert page.url.endswith("#/trends?range=24h")
    assert tile(page, "Incidents") == "2"
    assert tile(page, "Time to repair") == "3m36s"
    assert re.fullmatch(r"\d+\.\d %", tile(page, "Goodput"))
    page.locator("summary").click()
    rows = page.locator("table", has_text="Planned").locator("tbody tr")
    expect(rows).to_have_count(30)
    incidents = rows.locator("td:nth-child(2)").all_inner_texts()
    assert sum(map(int, incidents)) == 2


def test_incidents_are_shown_with_every_phase_and_its_seconds(fleet, visit) -> None:
    page = visit("ada", "incidents?state=open")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("Quarantined")
    expect(rows.get_by_role("img")).to_have_accessible_name(re.compile(r"quarantined, so far \d+m"))
    page.get_by_role("button", name="Ended").click()
    expect(rows).to_have_count(1)
    rows.get_by_role("link").first.click()

    heading = page.get_by_role("heading", name="NvidiaGpuXidErrorPendingReplacement")
    expect(heading).to_be_visible()
    points = page.locator("table", has_text="Since detected").locator("tbody tr").all_inner_texts()
    assert [re.sub(r"\s+", " ", one).split(" ")[0] for one in points] == [
        "detected", "quarantined", "drained", "repaired", "checked", "released",
    ]  # fmt: skip
    assert [one.split("\t")[2].strip() for one in points[1:]] == [
        "600ms", "29.4s", "2m", "1m", "6s",
    ]  # fmt: skip
    expect(page.locator("table", has_text="Down for").locator("tbody tr")).to_contain_text("2m")


# Live


def test_what_happens_is_reported_aloud_too(elsewhere, visit) -> None:
    store = elsewhere.runs.add("live", nodes=(1, 2), ranks=(1,))
    page = visit("ada", "fleet?q=live", at=elsewhere)
    expect(page.locator(".shown").last).to_contain_text("2 ")
    record = NodeRecord(
        phase=Phase.REBOOTING, phase_since=now(), remediation=remediation(2, Remedy.REBOOT)
    )
    well = store.nodes()[node(2)][2]
    for _ in range(2):
        store.put_node(node(2), record)
        expect(page.locator("#announced")).to_contain_text(f"{node(2)}: Rebooting")
        store.put_node(node(2), well)
        expect(page.locator(".chip", has_text="Rebooting").locator(".amount")).to_have_text("0")
        page.evaluate("document.getElementById('announced').textContent = ''")


def test_a_fault_of_a_real_run_is_seen_without_loading_anew(elsewhere, visit) -> None:
    with real_run(elsewhere.runs.home, "real") as run:
        page = visit("ada", "fleet?q=real", at=elsewhere)
        expect(page.locator(".shown").last).to_contain_text("2 ")
        page.evaluate("window.isSamePage = true")
        with contextlib.closing(LocalStore(run.state)) as store:
            broken = run.node(store.jobs()["real"][1].placement[0])
        line = xid_line(74, "0000:b9:00", XID_TEXTS[74])
        write_kernel_line(broken, line, now=datetime.now(UTC), since_boot=timedelta(seconds=9))

        page.get_by_role("link", name="Incidents", exact=True).click()
        page.get_by_label("Search incidents").fill(broken.path.name)
        row = page.locator("tbody tr")
        expect(row).to_contain_text("Released")
        row.get_by_role("link").first.click()
        down = page.locator("table", has_text="Down for").locator("tbody tr")
        expect(down).to_contain_text("real")
        page.goto(f"{elsewhere.served.url}/#/fleet?q=real&view=table")
        expect(row).to_have_count(2)
        expect(page.locator("main")).not_to_contain_text(broken.path.name[-17:])
        assert page.evaluate("window.isSamePage")


@contextlib.contextmanager
def real_run(home: Path, name: str) -> Iterator[RunDir]:
    """A job on one node that does nothing, and a spare node, until the end of the block."""
    argv = ["run", "--name", name, "--spares", "1", "--", "sleep", "600"]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *argv],
        env={**os.environ, "HOLDFAST_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            run = RunDir(home / "runs" / name)
            deadline = time.monotonic() + 30
            while not (run.state.exists() and is_running(run)):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield run
        finally:
            process.terminate()


def is_running(run: RunDir) -> bool:
    with contextlib.closing(LocalStore(run.state)) as store:
        known = store.jobs()
        return run.name in known and known[run.name][1].phase is JobPhase.RUNNING


def test_a_server_that_comes_again_is_found_again(browser, tmp_path, visit) -> None:
    with site(tmp_path) as first:
        store = first.runs.add("train", nodes=(1, 2), ranks=(1,))
        page = visit("ada", "fleet", at=first)
        expect(page.locator(".status")).to_have_text("Live")
        expect(page.locator(".shown").last).to_have_text("2 nodes")
        page.evaluate("window.isSamePage = true")
        first.served.process.kill()
        first.served.process.wait()
        expect(page.locator(".status")).to_have_text("Reconnecting…")
        old = page.locator("main > [role=alert]")
        expect(old).to_contain_text("The server cannot be reached.")
        expect(old).to_contain_text("Data as of")
        store.put_node(
            node(2),
            NodeRecord(phase=Phase.REPLACING, phase_since=now(), remediation=remediation(2)),
        )
        with site(tmp_path, str(first.served.port)):
            expect(page.locator(".status")).to_have_text("Live")
            expect(page.locator(".urgent li")).to_contain_text("Replacing")
            expect(old).to_be_hidden()
            assert page.evaluate("window.isSamePage")


def test_nothing_to_show_is_reported_with_what_to_do(tmp_path, visit) -> None:
    with site(tmp_path) as empty:
        page = visit("ada", "fleet", at=empty)
        expect(page.get_by_role("heading", name="No nodes yet")).to_be_visible()
        expect(page.locator("main")).to_contain_text("holdfast run -- COMMAND")
        for path, text in (
            ("jobs", "There are no runs yet"),
            ("incidents", "No incidents yet"),
            ("goodput", "No job has started yet"),
        ):
            page.goto(f"{empty.served.url}/#/{path}")
            expect(page.locator("main")).to_contain_text(text)


def test_nodes_that_cannot_be_read_are_reported_and_read_again(fleet, visit) -> None:
    page = visit("ada", "fleet")
    expect(page.locator(".status")).to_have_text("Live")
    trouble = 'event: trouble\ndata: {"now":"2026-01-02T03:04:05+00:00","message":"it is away"}\n\n'
    page.route("**/console/live", lambda route: route.fulfill(body=trouble, content_type=STREAM))
    page.reload()
    reported = page.locator("main [role=alert]")
    expect(reported).to_contain_text("The nodes cannot be read")
    expect(reported).to_contain_text("it is away")
    for path in ("jobs", "incidents"):
        page.goto(page.url.partition("#")[0] + f"#/{path}")
        expect(reported).to_contain_text("it is away")
        expect(page.locator("main")).to_contain_text("No data has been read yet.")
        expect(page.locator("main")).not_to_contain_text("0 incidents")
    page.goto(page.url.partition("#")[0] + "#/fleet")
    page.unroute("**/console/live")

    expect(page.locator(".shown").last).to_have_text("12 nodes")
    expect(page.locator(".status")).to_have_text("Live")


# For everybody

PAGES = {
    "fleet": "fleet",
    "fleet-table": "fleet?view=table",
    "node": f"node/llm/{node(3)}",
    "jobs": "jobs",
    "job": "job/llm",
    "incidents": "incidents",
    "incident": f"incident/llm/{PAST_ID}",
    "goodput": "goodput",
    "trends": "trends?range=24h",
}
SCROLL_BAR = 15
"""Width in pixels where the desktop shows one; here it lies on the page."""

LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "color_scheme": "light"},
}


@pytest.mark.parametrize("look", LOOKS)
def test_pages_are_for_everybody_and_fit(fleet, visit, look) -> None:
    page = visit("ada", "fleet", **LOOKS[look], reduced_motion="reduce")
    found = {}
    # In dark, the colors alone are other ones.
    rules = {"runOnly": ["color-contrast"]} if look == "dark" else {}
    for name, path in PAGES.items():
        page.goto(page.url.partition("#")[0] + f"#/{path}")
        expect(page.locator("main h1")).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        keep_picture(page, SHOTS / f"{name}-{look}.png")
        found[name] = [
            (one["id"], one["help"], node["html"][:200], node["failureSummary"][:300])
            for one in violations(page, **rules)
            for node in one["nodes"]
        ]
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= page.viewport_size["width"], name

    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_the_door_and_a_question_are_for_everybody(fleet, visit) -> None:
    page = visit("")
    expect(page.get_by_label("Token")).to_be_visible()
    door = violations(page)
    page = visit("ada", f"node/llm/{node(2)}")
    dialog(page, "Replace")
    page.screenshot(path=SHOTS / "question.png")

    assert door == []
    assert violations(page) == []


def fail_once(page: Page, address: str) -> None:
    """The first request of a browser for an address fails, as when the network changes."""
    requests = []

    def answer(route):
        requests.append(route.request.url)
        if len(requests) == 1:
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route(address, answer)


@pytest.mark.parametrize("file", ["trends.js", "app.js", "theme.js", "console.css"])
def test_a_console_of_which_a_file_could_not_be_read_loads_again(fleet, visit, file) -> None:
    page = visit("ada", "fleet")
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    fail_once(page, f"**/{file}")
    page.reload()
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    expect(page.get_by_text("could not be loaded")).to_have_count(0)

    page.wait_for_load_state("load")
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize("file", ["trends.js", "console.css"])
def test_a_console_without_one_of_its_files_is_not_loaded_for_ever(fleet, visit, file) -> None:
    page, loads = visit("ada", "fleet"), []
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    page.route(f"**/{file}", lambda route: route.abort("connectionreset"))
    page.on("request", lambda one: loads.append(one) if one.is_navigation_request() else None)
    page.reload()
    expect(page.get_by_role("alert").filter(has_text="reload the page")).to_contain_text("/static/")
    seen = len(loads)
    page.wait_for_timeout(5000)  # longer than the longest pause

    assert len(loads) == seen == 5
    assert page.get_by_role("heading", name="Fleet").is_visible() == (file == "console.css")
    assert page.evaluate("sessionStorage.length") == 0


def test_a_console_whose_server_did_not_respond_opens_once_it_does(fleet, visit) -> None:
    page = visit("ada", "fleet")
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    fail_once(page, "**/console/session")
    page.reload()
    expect(page.get_by_role("alert").filter(has_text="Retrying until it responds")).to_be_visible()

    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    expect(page.locator("#door")).to_be_empty()


def test_colors_are_chosen_and_remembered(fleet, visit) -> None:
    page = visit("ada", "jobs", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Switch to the dark theme").click()
    dark = page.evaluate(ground)
    page.reload()
    expect(page.get_by_role("button", name="Switch to the light theme")).to_be_visible()

    assert light != dark
    assert page.evaluate(ground) == dark


def test_an_unknown_page_says_so(fleet, visit) -> None:
    for path in ("nodez/llm", "constructor"):
        page = visit("ada", path)
        expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
        expect(page.get_by_role("alert").last).to_contain_text(f"#/{path}")
    page.get_by_role("link", name="Go to the fleet").click()
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()


def test_a_slash_searches_and_the_address_keeps_what_is_searched_for(fleet, visit) -> None:
    page = visit("ada", "jobs")
    expect(page.locator("tbody tr")).not_to_have_count(0)
    page.keyboard.press("/")
    expect(page.get_by_label("Search jobs")).to_be_focused()
    page.keyboard.type("ll/")
    expect(page.locator(".empty")).to_have_text("No job matches.")
    page.keyboard.press("Backspace")
    expect(page.locator("tbody tr")).not_to_have_count(0)
    assert page.url.endswith("#/jobs?q=ll")
    page.reload()
    expect(page.get_by_label("Search jobs")).to_have_value("ll")


def test_a_table_is_sorted_and_its_address_keeps_that(fleet, visit) -> None:
    page = visit("ada", "fleet?view=table")
    names = page.locator("tbody th")
    header = page.get_by_role("columnheader", name="Reason")
    expect(names).to_have_count(12)
    state = page.get_by_role("columnheader", name="State").get_by_role("button")
    state.click()
    expect(page.locator("tbody tr").first).to_contain_text("Faulty")
    state.click()
    expect(page.locator("tbody tr").first).to_contain_text("Healthy")
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", "ascending")
    expect(names.first).to_have_text(short(3))
    expect(page.locator("tbody tr").last).to_contain_text("\u2013")  # without a reason
    header.get_by_role("button").press("Enter")
    expect(header).to_have_attribute("aria-sort", "descending")
    expect(page.locator("tbody tr").first).to_contain_text("RebootRequested")
    assert page.url.endswith("#/fleet?view=table&sort=-reason")
    page.reload()
    expect(page.locator("tbody tr").first).to_contain_text("RebootRequested")
    page.get_by_role("columnheader", name="Reason").get_by_role("button").click()
    expect(names.first).to_have_text(short(1))
    assert page.url.endswith("#/fleet?view=table")


def test_jobs_are_filtered_by_state_and_incidents_name_their_nodes(fleet, visit) -> None:
    page = visit("ada", "jobs?state=ended&sort=-nodes")
    expect(page.get_by_role("button", name="Ended")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".empty")).to_have_text("No job matches.")
    page.get_by_role("button", name="Active").click()
    expect(page.get_by_role("link", name="llm")).to_be_visible()
    assert page.url.endswith("#/jobs?state=active&sort=-nodes")
    page.get_by_role("link", name="Incidents", exact=True).click()
    page.get_by_role("columnheader", name="Reason").get_by_role("button").click()
    expect(page.locator("tbody tr").last).to_contain_text("NvidiaGpuXidError")
    page.locator("tbody").get_by_role("link", name=short(3)).click()
    expect(page.get_by_role("heading", name=short(3))).to_be_visible()


def test_events_name_what_they_are_about_and_repeats_are_one_line(elsewhere, visit) -> None:
    store = elsewhere.runs.add("noisy", nodes=(1, 2), ranks=(1,))
    for number in range(1, 4):
        waits = JobWaits(job="noisy", why=f"needs {number} nodes, has {number - 1}")
        store.add_event(ago(10 - number), waits)
    store.add_event(ago(1), NodeAgentSilent(node=node(2), since=ago(2)))
    page = visit("ada", "job/noisy", at=elsewhere)
    rows = page.locator("table", has_text="Event").last.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("needs 3 nodes, has 2 \u00d7 3 since")
    rows.first.get_by_role("link", name=node(2)).click()
    expect(page.get_by_role("heading", name=short(2))).to_be_visible()


def test_nothing_moves_for_who_wants_that(fleet, visit) -> None:
    page = visit("ada", "fleet", reduced_motion="reduce")
    expect(page.locator(".status")).to_have_text("Live")

    assert (
        page.evaluate("getComputedStyle(document.querySelector('main > *')).transitionDuration")
        == "0s"
    )
