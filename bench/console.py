"""The console in a real browser over 5,000 and 50,000 nodes, of which 200 change each second.

The server is a process of its own (tests/engines/made_console.py). Its nodes are made up; all from
there to the page is the real thing. How soon a fault is seen is measured with a real run on this
machine.

    python -m bench console
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from bench import needs
from bench.agent import resident_mib
from bench.figure import Figure
from holdfast.adapters.local.faults import XID_TEXTS, write_kernel_line, xid_line
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.store import LocalStore
from holdfast.model.jobs import JobPhase
from holdfast.model.nodes import Phase
from tests.engines.made_console import TOKEN

BY_NAME_ONLY = "it takes minutes"

SIZES = {5_000: (1.5, 33.4), 50_000: (8.0, 100.0)}
"""``nodes -> goals``: first paint in seconds and p99 of a frame in ms, on a busy machine."""

CHANGES_PER_S = 200
WATCHED_S = 15.0
PAINTS = 5
FAULTS = 8
REPLACE_XID = 74
RUN = "bench"

_PAINTED = """
window.painted = new Promise((done) => {
  const look = () => {
    const shown = [...document.querySelectorAll(".shown")].at(-1)?.textContent ?? "";
    if (shown.replace(/\\D/g, "") !== "%d") return requestAnimationFrame(look);
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
  };
  requestAnimationFrame(look);
});
"""
_WATCH = """
window.tasks = [];
window.frames = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.tasks.push(one.duration);
}).observe({ type: "longtask" });
let before = performance.now();
const frame = (now) => {
  window.frames.push(now - before);
  before = now;
  requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
"""
_SEEN = """
(name) => {
  window.seen = new Promise((done, failed) => {
    const look = () => document.querySelector(".urgent").textContent.includes(name)
      ? done(Date.now()) : requestAnimationFrame(look);
    look();
    setTimeout(() => failed(new Error(`${name} was not shown within 30 s`)), 30000);
  });
}
"""


def lacks() -> str:
    """A browser, if there is none."""
    return needs.chromium()


def run() -> list[Figure]:
    """Open pages, watch one, break nodes."""
    with sync_playwright() as playwright:
        found = next(path for name in needs.CHROMIUM if (path := shutil.which(name)))
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=flags)
        with closing(browser):
            scales = [figure for nodes in SIZES for figure in _at_scale(browser, nodes)]
            return [*scales, *_faults(browser)]


def _at_scale(browser: Any, nodes: int) -> Iterator[Figure]:
    paint_s, frame_ms = SIZES[nodes]
    with _made_console(nodes) as (url, process):
        paints = []
        for _ in range(PAINTS):
            page = _entered(browser, url, TOKEN.strip())
            page.add_init_script(_PAINTED % nodes)
            page.reload()
            paints.append(page.evaluate("window.painted") / 1000)
            page.context.close()
        page = _entered(browser, url, TOKEN.strip())
        page.evaluate(_WATCH)
        time.sleep(WATCHED_S)
        frames = sorted(page.evaluate("window.frames"))
        tasks = page.evaluate("window.tasks")
        yield Figure(
            name=f"first paint of {nodes:,} nodes, worst of {PAINTS}",
            value=max(paints),
            unit="s",
            goal=paint_s,
        )
        yield Figure(
            name=f"frame of {nodes:,} nodes while {CHANGES_PER_S} changes/s arrive, p99",
            value=frames[int(len(frames) * 0.99)],
            unit="ms",
            goal=frame_ms,
        )
        yield Figure(
            name=f"longest task of the page of {nodes:,} nodes meanwhile",
            value=max(tasks, default=0),
            unit="ms",
            goal=3 * frame_ms,
        )
        yield Figure(
            name=f"memory of the server, {nodes:,} nodes",
            value=resident_mib(process.pid),
            unit="MiB",
            goal=150 if nodes <= 5_000 else 250,
        )
        page.context.close()


def _faults(browser: Any) -> Iterator[Figure]:
    """How soon the page of a real run shows a fault of a node."""
    with _real_console() as (url, token, run):
        page = _entered(browser, url, token)
        seconds = []
        for _ in range(FAULTS):
            name = _running_node(run)
            line = xid_line(REPLACE_XID, "0000:b9:00", XID_TEXTS[REPLACE_XID])
            page.evaluate(_SEEN, name.removeprefix("hyperpod-"))
            written_at = time.time()
            write_kernel_line(
                run.node(name), line, now=datetime.now(UTC), since_boot=timedelta(seconds=9)
            )
            seen_at = page.evaluate("window.seen") / 1000
            seconds.append(seen_at - written_at)
        page.context.close()
        yield Figure(
            name=f"fault of a node to its sight on the page, worst of {FAULTS}",
            value=max(seconds),
            unit="s",
            goal=1,
        )


def _entered(browser: Any, url: str, token: str) -> Page:
    page: Page = browser.new_context(viewport={"width": 1600, "height": 1000}).new_page()
    page.goto(url)
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    page.get_by_text("Live", exact=True).wait_for()
    return page


@contextmanager
def _made_console(nodes: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    argv = [sys.executable, "-m", "tests.engines.made_console", str(nodes), str(CHANGES_PER_S)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/", process
        finally:
            process.terminate()


@contextmanager
def _real_console() -> Iterator[tuple[str, str, RunDir]]:
    """The console of a run on one node with two spares, whose machines boot in two seconds.

    Its job ignores SIGTERM: a drained node is replaced, and leaves the page, at once.
    """
    with tempfile.TemporaryDirectory() as home:
        own = [sys.executable, "-m", "holdfast"]
        environment = {**os.environ, "HOLDFAST_HOME": home}
        config, keys = Path(home, "config.toml"), Path(home, "api.toml")
        config.write_text('[machines]\nboot_time = "2s"\n', encoding="utf-8")
        make = [*own, "api", "--new-key", "view", "--out", str(keys)]
        subprocess.run(make, check=True, capture_output=True)
        job = [
            "--config",
            str(config),
            "--max-retries",
            "1000",
            "--spares",
            "2",
            "--",
            sys.executable,
            "-c",
            "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)",
        ]
        with (
            subprocess.Popen(
                [*own, "run", "--name", RUN, *job], env=environment, stdout=subprocess.DEVNULL
            ) as run,
            subprocess.Popen(
                [*own, "api", "--config", str(keys), "--listen", "0"],
                env=environment,
                stderr=subprocess.PIPE,
                text=True,
            ) as api,
        ):
            try:
                assert api.stderr is not None
                url = next(line.split()[-1] for line in api.stderr if "api: console: " in line)
                [token_file] = Path(home).glob("api.toml.*.token")
                yield (
                    url,
                    token_file.read_text(encoding="utf-8").strip(),
                    RunDir(Path(home, "runs", RUN)),
                )
            finally:
                api.terminate()
                run.terminate()


def _running_node(run: RunDir) -> str:
    """The node of a job that runs, once all nodes are well again."""
    while True:
        time.sleep(0.1)
        if not run.state.exists():
            continue
        with closing(LocalStore(run.state)) as store:
            jobs = store.jobs()
            phases = {record.phase for _, _, record in store.nodes().values()}
            if RUN in jobs and phases == {Phase.SCHEDULABLE}:
                record = jobs[RUN][1]
                if record.phase is JobPhase.RUNNING:
                    return record.placement[0]
