"""Logs and cancellation of a real job in a real browser."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from page_checks import violations
from playwright.sync_api import expect

SHOTS = Path(__file__).parents[2] / "build/console"
TRAIN = """
import sys, time
print("\\x1b[32mloading\\x1b[0m <b>data</b>", flush=True)
print("10 %\\r50 %\\r100 %", flush=True)
for step in range(100_000):
    print(f"step {step}: loss {1 / (step + 1):.4f}", flush=True)
    time.sleep(0.05)
"""


@contextlib.contextmanager
def training(home: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    argv = ["run", "--name", name, "--nodes", "2", "--grace", "1s"]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *argv, "--", sys.executable, "-c", TRAIN],
        env={**os.environ, "HOLDFAST_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_a_log_is_followed_searched_stored_and_its_job_cancelled(console, visit) -> None:
    with training(console.runs.home, "train") as process:
        page = visit("ada", "jobs")
        page.get_by_role("link", name="train").click()
        page.get_by_role("link", name="Log of rank 1").click()
        log = page.get_by_role("region", name="Log", exact=True)
        expect(log).to_contain_text("loading <b>data</b>\n100 %\nstep 0")
        expect(log).to_contain_text("step 30:")
        assert log.evaluate("one => one.scrollTop + one.clientHeight >= one.scrollHeight - 4")
        expect(page.get_by_label("Rank")).to_have_value("1")

        page.keyboard.press("/")
        page.keyboard.type("STEP 1:")
        expect(log).to_have_text("step 1: loss 0.5000\n")
        expect(log.locator("mark")).to_have_text("step 1:")
        assert page.url.endswith("#/log/train?rank=1&q=STEP+1%3A")
        page.screenshot(path=SHOTS / "log.png")
        assert violations(page) == []
        page.set_viewport_size({"width": 360, "height": 740})
        page.screenshot(path=SHOTS / "log-phone.png")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.reload()
        expect(log).to_have_text("step 1: loss 0.5000\n")
        with page.expect_download() as stored:
            page.get_by_role("link", name="Download").click()
        assert stored.value.suggested_filename == "train-attempt-1-rank-1.log"
        assert "\x1b[32mloading" in Path(stored.value.path()).read_text("utf-8")

        page.get_by_role("link", name="train").click()
        page.get_by_role("button", name="Cancel job").click()
        page.get_by_role("button", name="Keep it running").click()
        assert process.poll() is None
        page.get_by_role("button", name="Cancel job").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
        expect(page.locator(".notice")).to_contain_text("Cancellation of train requested")
        process.wait(20)
        expect(page.get_by_role("button", name="Cancel job")).to_have_count(0)


def test_a_log_that_cannot_be_read_says_why(console, visit) -> None:
    page = visit("ada", "log/nobody")
    expect(page.get_by_role("alert").last).to_have_text("job nobody not found")


def test_who_may_only_look_cannot_cancel(console, visit) -> None:
    console.runs.add("alone")
    page = visit("bob", "job/alone")
    expect(page.get_by_role("link", name="Logs")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel job")).to_have_count(0)
