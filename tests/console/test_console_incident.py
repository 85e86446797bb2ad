"""The page of an incident, for who was woken up by it."""

import contextlib
import json
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

from page_checks import violations
from playwright.sync_api import expect
from test_console_logs import SHOTS
from written_runs import LINE, machine, node, remediation

from holdfast.apps.api.console_tables import INCIDENTS
from holdfast.kit.serial import to_plain
from holdfast.model.health import Remedy
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.nodes import NodeRecord, Phase
from holdfast.model.set_aside import SetAside

now = cache(lambda: datetime.now(UTC))  # at its first use: modules are imported long before


def ago(minutes: float) -> datetime:
    return now() - timedelta(minutes=minutes)


PAST = Incident(
    id=f"{node(1)}-20260102T030405.001",
    node=node(1),
    provider_id=machine(1),
    reason="NvidiaGpuXidErrorPendingReplacement",
    remedy="replace",
    message=f"{LINE}\n```\n<b>x</b>",
    detected_at=ago(41),
    quarantined_at=ago(40.99),
    drained_at=ago(40.5),
    repaired_at=ago(38.5),
    checked_at=ago(37.5),
    released_at=ago(37.4),
    successor=node(2),
    check_remarks="nccl: one GPU only",
    jobs=(AffectedJob(job="hurt", attempt=1, stopped_at=ago(41), resumed_at=ago(39), step=120),),
)
WAITS = Incident(
    id=remediation(3).incident_id,
    node=node(3),
    provider_id=machine(3),
    reason="AgentSilent",
    remedy="reboot",
    message="no heartbeat",
    detected_at=ago(20),
    quarantined_at=ago(19.9),
)

ASIDE = SetAside(
    name="step_3",
    path="/my ckpt.set-aside/step_3",
    why="damaged: __1_0.distcp: checksum of bytes 0 to 16777216 differs",
    at=ago(5),
    folder="/my ckpt",
    state="damaged",
    depth="hashes",
    problems=("__1_0.distcp: checksum of bytes 0 to 16777216 differs",),
    step=3,
    size=2 << 40,
    saved_at=ago(30),
    job="trains-1a2b3c4d",
    attempt=3,
    resumed="step_2",
    attempts=(1, 2),
)
MOVED = Incident(
    id="checkpoint-0123456789ab-20260102T030405.001",
    job="trains",
    checkpoint=ASIDE,
    reason="CheckpointQuarantined",
    remedy="none",
    message=f"step_3 at step 3: {ASIDE.why}; moved to {ASIDE.path}; the job resumes from step_2",
    detected_at=ago(5),
    quarantined_at=ago(5),
)


def test_an_incident_is_explained_and_copied_as_markdown(console, visit) -> None:
    store = console.runs.add("hurt", nodes=(2, 3), ranks=(2,))
    store.put(PAST)
    page = visit("ada", f"incident/hurt/{PAST.id}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    main = page.locator("main")

    expect(main).to_contain_text("A GPU, its link or its switch is broken.")
    expect(main).to_contain_text("Xid 74: NVLink error.")
    evidence = page.get_by_role("region", name="Evidence")
    expect(evidence).to_have_text(PAST.message)
    box, card = evidence.bounding_box(), main.locator("section.card").first.bounding_box()
    assert box["width"] > 0.9 * card["width"]
    expect(main).to_contain_text("Remedy: replace the machine by another one, the smallest")
    expect(main).to_contain_text(f"No action required: {node(2)} is schedulable")
    expect(main).to_contain_text("Parts of its check did not run: nccl: one GPU only")
    page.screenshot(path=SHOTS / "incident-explained.png", full_page=True)

    page.get_by_role("button", name="Copy as Markdown").click()
    expect(page.locator(".notice")).to_contain_text("Copied")
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith(f"## {PAST.reason} on {node(1)}\n\n- Incident: {PAST.id}, released\n")
    assert f"\n````\n{PAST.message}\n````\n" in text
    assert f"| released | {PAST.released_at.isoformat()}" in text.replace("Z", "+00:00")
    assert f"- Replaced by: {node(2)}" in text
    assert text.rstrip().endswith(page.url)
    assert violations(page) == []


def test_an_incident_that_waits_says_for_what(console, visit) -> None:
    store = console.runs.add("stuck", nodes=(3,), ranks=(3,))
    store.put(WAITS)
    goes_on = remediation(3, Remedy.REBOOT)
    store.put_node(
        node(3),
        NodeRecord(phase=Phase.QUARANTINED, phase_since=ago(19.9), remediation=goes_on),
    )
    page = visit("ada", f"incident/stuck/{WAITS.id}")
    main = page.locator("main")
    expect(main).to_contain_text(f"holdfast nodes reboot {node(3)}")
    store.hold(node(3), "the vendor is at it")
    expect(main).to_contain_text("the vendor is at it")


def test_an_incident_of_a_checkpoint_shows_the_evidence_and_the_commands(console, visit) -> None:
    store = console.runs.add("trains", nodes=(5,), ranks=(5,))
    store.put(MOVED)
    page = visit("ada", "incidents?q=step_3")
    main = page.locator("main")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("step_3")
    expect(row).to_contain_text("Quarantined")
    expect(row).to_contain_text("trains")
    row.get_by_role("link").first.click()

    expect(main).to_contain_text("was moved out of its directory")
    expect(page.get_by_role("region", name="Evidence")).to_have_text(ASIDE.problems[0])
    expect(main).to_contain_text("2.0 TiB")
    expect(main).to_contain_text("Attempts that resumed from it1, 2")
    expect(main).to_contain_text("holdfast checkpoint release '/my ckpt' step_3")
    expect(main.get_by_role("link", name="trains").first).to_be_visible()
    page.screenshot(path=SHOTS / "incident-checkpoint.png", full_page=True)
    assert violations(page) == []
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as Markdown").click()
    expect(page.locator(".notice")).to_contain_text("Copied")
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith(f"## CheckpointQuarantined of step_3\n\n- Incident: {MOVED.id}")
    assert "- Job: trains\n" in text
    assert f"\n```\n{ASIDE.problems[0]}\n```\n" in text
    page.goto(page.url.partition("#")[0] + "#/trends")
    expect(main).to_contain_text("Incidents")


def test_an_incident_that_is_no_longer_listed_has_its_page(console, visit) -> None:
    store = console.runs.add("past", nodes=(6,), ranks=(6,))
    old = replace(PAST, id="old-incident", detected_at=ago(10_000), quarantined_at=ago(10_000))
    store.put(old)
    newer = replace(PAST, detected_at=ago(100))
    rows = [
        (name, json.dumps(to_plain(replace(newer, id=name))))
        for name in (f"newer-{number}" for number in range(INCIDENTS))
    ]
    with contextlib.closing(sqlite3.connect(console.runs.directory("past").state)) as db, db:
        db.executemany("INSERT INTO incidents (id, body) VALUES (?, ?)", rows)
    page = visit("ada", "incidents?q=newer-1")
    expect(page.locator(".shown")).to_contain_text("the newest of")
    page.get_by_label("Search incidents").fill(old.id)
    expect(page.locator(".empty")).to_have_text("No incident matches.")
    page.goto(page.url.partition("#")[0] + f"#/incident/past/{old.id}")
    expect(page.locator("main")).to_contain_text(f"No action required: {node(2)} is schedulable")
    page.goto(page.url.partition("#")[0] + "#/incident/past/never-was")
    expect(page.get_by_role("heading", name="Incident not found")).to_be_visible()
    own = console.visitor("jon").call("GET", f"/console/incident?fleet=past&id={old.id}")
    assert own.status == 404


def test_the_audit_log_is_shown_to_administrators(console, visit) -> None:
    ada, ida = console.visitor("ada"), console.visitor("ida")
    console.runs.add("audited", nodes=(4,), ranks=(4,))
    repair = {"act": "reboot", "fleet": "audited", "node": node(4)}
    assert ada.call("POST", "/console/repairs", repair).status == 202
    bob = console.visitor("bob")
    assert bob.call("POST", "/console/repairs", repair).status == 403
    assert [one.call("GET", "/console/audit").status for one in (ada, bob, ida)] == [403, 403, 200]

    page = visit("ida", "fleet")
    page.get_by_role("link", name="Audit").click()
    page.get_by_label("Search the audit log").fill("audited")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("bob")
    expect(rows.first).to_contain_text("refused")
    expect(rows.first).to_contain_text("is not authorized")
    expect(rows.last).to_contain_text("BatchRebootClusterNodes")
    page.screenshot(path=SHOTS / "audit.png")
    assert violations(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    page.screenshot(path=SHOTS / "audit-phone.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    expect(visit("bob", "fleet").get_by_role("link", name="Audit")).to_have_count(0)
