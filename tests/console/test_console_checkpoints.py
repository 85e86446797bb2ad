"""The page of the checkpoints of a job."""

import os
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from page_checks import violations
from playwright.sync_api import expect
from test_console_logs import SHOTS

from holdfast.adapters.checkpoints.history import write_history
from holdfast.decisions.checkpoint_incidents import quarantine_incidents
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.checkpoints import AttemptEnd, CheckpointHistory, ResumedAttempt
from holdfast.model.jobs import FailureKind
from holdfast.model.set_aside import SetAside
from tests.archives import opened

RECORDING = Path(__file__).parents[1] / "recordings/checkpoints/dcp.tar.xz"
now = cache(lambda: datetime.now(UTC))  # at its first use: modules are imported long before


def ago(minutes: float) -> datetime:
    return now() - timedelta(minutes=minutes)


def unpack(folder: Path) -> None:
    with opened(RECORDING) as archive:
        for member in archive.getmembers():
            if member.name.startswith("sync/"):
                member.name = member.name.removeprefix("sync/")
                archive.extract(member, folder)
    for number, minutes in ((1, 30), (2, 20), (3, 10)):
        own = folder / f"step_{number}"
        for path in (own, *own.iterdir()):
            os.utime(path, (ago(minutes).timestamp(),) * 2)


def test_each_checkpoint_is_shown_with_its_state_and_the_attempts(console, visit) -> None:
    store = console.runs.add("saves", nodes=(6,), ranks=(6,), started_at=ago(40))
    folder = console.runs.directory("saves").checkpoints
    unpack(folder)
    os.truncate(folder / "step_3/__1_0.distcp", 1000)
    end = AttemptEnd(kind=FailureKind.HARDWARE, reason="NodeLost")
    resumed = ResumedAttempt(job="saves", attempt=2, at=ago(15), checkpoint="step_2", end=end)
    moved = SetAside(
        name="step_9",
        path=f"{folder}.set-aside/step_9",
        why="damaged: a is too short",
        at=ago(3),
        folder=str(folder),
        state="damaged",
        depth="hashes",
        problems=("a is too short",),
        step=9,
        size=3 << 30,
        saved_at=ago(5),
    )
    history = CheckpointHistory(attempts=(resumed,), aside=(moved,))
    write_history(folder, history, may_be_inside=False)
    [incident] = quarantine_incidents("saves", [moved], (), RemediationPolicy(), now())
    store.put(incident)

    page = visit("ada", "job/saves")
    page.get_by_role("link", name="Checkpoints").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(0)).to_contain_text("damaged")
    expect(rows.nth(0)).to_contain_text("__1_0.distcp has 1000 bytes instead of")
    expect(rows.nth(1)).to_contain_text("complete")
    expect(rows.nth(1)).to_contain_text("#2 (NodeLost)")
    expect(rows.nth(1)).to_contain_text("names and sizes")
    expect(rows.nth(3)).to_contain_text("quarantined")
    expect(rows.nth(3)).to_contain_text("3.0 GiB")
    plot = page.get_by_role("region", name="Timeline of saves")
    expect(plot.locator("path.saved-complete")).to_have_count(2)
    expect(plot.locator("path.saved-bad")).to_have_count(2)
    expect(plot.locator("title", has_text="step_9: quarantined")).to_have_count(1)
    page.screenshot(path=SHOTS / "checkpoints.png", full_page=True)
    assert violations(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.set_viewport_size({"width": 1280, "height": 900})
    rows.nth(3).get_by_role("link", name="incident").click()
    expect(page.locator("main")).to_contain_text("a is too short")


def test_a_job_without_checkpoints_says_so(console, visit) -> None:
    console.runs.add("fresh", nodes=(7,), ranks=(7,))

    page = visit("ada", "checkpoints/fresh")

    expect(page.locator("main")).to_contain_text("There is no checkpoint in")
    expect(visit("ada", "checkpoints/missing").get_by_role("alert").last).to_contain_text("missing")
    assert violations(page) == []
