"""Writes the pictures of docs/pictures, each from a real run on this machine.

    make pictures                   all
    make pictures ARGS=console      those of the console

``recovery.svg`` is output of ``holdfast demo``. ``console.png``, ``incident.png`` and ``job.png``
are pages of the console during a run of which ``holdfast inject`` broke several nodes; they need
Chromium.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright
from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
HOLDFAST: Final = Path(sys.executable).with_name("holdfast")
BROWSERS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

RUN: Final = "llm"
_COLUMNS: Final = 100
_TIMEOUT_S: Final = 180.0
_PORT: Final = 8479
_FAULT: Final = "   >>> "
"""What the demo prints before a fault that it injects."""

_STYLES: Final = (
    (r"^\$ .*", "bold"),
    (r"^   >>> .*", "bold red"),
    (r" quarantined for [\w ]+: \w+", "red"),
    (r"attempt \d+ running on|NodeReleased|NodeReplaced", "green"),
    (r"^Equal to the bit.*", "bold green"),
    (r"^FAULT .*", "bold"),
    (r"^\[ *[\d.]+s\]|^\.\.\. .*", "dim"),
)

_SETTINGS: Final = """
[machines]
boot_time = "30s"
[nodes]
heartbeat_timeout = "1m"
join_timeout = "5m"
reboot_timeout = "5m"
replace_timeout = "5m"
"""
"""Timeouts at which a busy machine mistakes no node for a silent one."""

_TRAIN: Final = """
import os, time
step, saved = 0, os.path.join(os.environ["HOLDFAST_CHECKPOINT_DIR"], "step")
if os.path.exists(saved):
    step = int(open(saved).read())
leads = os.environ["RANK"] == "0"
while True:
    if leads:
        print(step, file=open(os.environ["HOLDFAST_PROGRESS_FILE"], "a"))
        if step % 10 == 0:
            with open(saved + ".new", "w") as file:
                file.write(str(step))
            os.replace(saved + ".new", saved)
    step += 1
    time.sleep(0.2)
"""
"""A job that only counts steps, so that many nodes fit on one machine."""


def main(argv: Sequence[str]) -> int:
    """Write the named pictures, or all."""
    drawn: dict[str, Callable[[], Sequence[Path]]] = {"recovery": recovery, "console": console}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(drawn))
    names = parser.parse_args(argv).names or list(drawn)
    if unknown := set(names) - set(drawn):
        parser.error(f"no picture {', '.join(sorted(unknown))}; there are: {', '.join(drawn)}")
    PICTURES.mkdir(exist_ok=True)
    for name in names:
        for path in drawn[name]():
            print(f"{path.relative_to(Path.cwd())}: {path.stat().st_size // 1024} KiB")
    return 0


# The terminal


def recovery() -> Sequence[Path]:
    """The first fault of the demo, and its end."""
    done = subprocess.run(
        [HOLDFAST, "demo"], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    recorder = Console(record=True, width=_COLUMNS, file=StringIO(), color_system="truecolor")
    for line in ["$ holdfast demo", *excerpt(done.stdout.splitlines())]:
        text = Text(line)
        for pattern, style in _STYLES:
            text.highlight_regex(pattern, style)
        recorder.print(text, no_wrap=True, overflow="ellipsis")
    path = PICTURES / "recovery.svg"
    # Pages show pictures without the fonts of other hosts, which rich's own form refers to.
    head, _, rest = CONSOLE_SVG_FORMAT.partition("@font-face")
    form = head + rest[rest.index(".{unique_id}-matrix") :]
    form = re.sub(r"<!--.*?-->", "", form)
    form = form.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    recorder.save_svg(str(path), title="holdfast demo", code_format=form, unique_id="recovery")
    return [path]


def excerpt(lines: Sequence[str]) -> list[str]:
    """The lines from the first fault to its end, and those from the timeline on."""
    faults = [number for number, line in enumerate(lines) if line.startswith(_FAULT)]
    timeline = next(number for number, line in enumerate(lines) if line.startswith("FAULT "))
    others = [lines[number].removeprefix(_FAULT).split(" on ")[0] for number in faults[1:]]
    left_out = f"... and so on for: {', '.join(others)}"
    return [*lines[faults[0] : faults[1]], left_out, "", *lines[timeline:]]


# The console


def console() -> Sequence[Path]:
    """The fleet while a repair waits and others proceed, an ended incident, and the job."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as home:
        environment = {**os.environ, "HOLDFAST_HOME": home, "HOLDFAST_PLATFORM": "local"}
        settings = Path(home, "run.toml")
        settings.write_text(_SETTINGS, encoding="utf-8")
        start = ["run", "--nodes", "8", "--spares", "2", "--name", RUN]
        more = ["--config", str(settings), "--logs", "none"]
        Path(home, "train.py").write_text(_TRAIN, encoding="utf-8")
        environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        train = [*start, *more, "--", "python", "train.py"]
        with _running(train, environment, home):
            _break_nodes(environment)
            config = Path(home, "api.toml")
            make = ["api", "--new-key", "operate", "--name", "ada", "--out", str(config)]
            _holdfast(make, environment)
            [token_file] = Path(home).glob("api.toml.*.token")
            token = token_file.read_text(encoding="utf-8").strip()
            serve = ["api", "--config", str(config), "--listen", str(_PORT)]
            with _running(serve, environment), _page() as page:
                _log_in(page, token)
                return [*_pages(page, _first_incident(environment))]


def _pages(page: Page, incident: str) -> Iterator[Path]:
    """Take the pictures of the pages, at the top of each."""
    pages = {
        "console": ("fleet", ".asked li"),
        "incident": (f"incident/{RUN}/{incident}", ".evidence"),
        "job": (f"job/{RUN}", ".timeline"),
    }
    for name, (path, complete) in pages.items():
        page.goto(f"http://127.0.0.1:{_PORT}/#/{path}")
        page.locator(complete).first.wait_for()
        page.wait_for_timeout(500)  # of the transitions
        picture = PICTURES / f"{name}.png"
        page.screenshot(path=picture)
        yield picture


def _first_incident(environment: dict[str, str]) -> str:
    """Return the ID of the incident whose repair has ended."""
    listed = json.loads(_holdfast(["incidents", "list", "--output", "json"], environment))
    return next(one["id"] for one in listed if one["released_at"] is not None)


def _break_nodes(environment: dict[str, str]) -> None:
    """Break nodes one after the other, so that they are in different phases afterwards."""
    _wait_until(lambda: _steps(environment) > 20)
    _inject(environment, xid=79, rank=4)
    _wait_until(lambda: _phases(environment).count("schedulable") == 10)
    _wait_until(lambda: _steps(environment) > 150)
    _inject(environment, xid=74, rank=2)
    _wait_until(lambda: "joining" in _phases(environment))
    _inject(environment, xid=73, rank=5)
    _wait_until(lambda: "rebooting" in _phases(environment))
    _holdfast(["nodes", "hold", "6", "--why", "the vendor replaces its cable"], environment)
    _inject(environment, xid=63, rank=6)
    _wait_until(lambda: "quarantined" in _phases(environment))


def _inject(environment: dict[str, str], *, xid: int, rank: int) -> None:
    _holdfast(["inject", "xid", str(xid), "--node", str(rank)], environment)


def _phases(environment: dict[str, str]) -> list[str]:
    nodes = json.loads(_holdfast(["nodes", "list", "--output", "json"], environment))
    return [node["phase"] for node in nodes]


def _steps(environment: dict[str, str]) -> int:
    jobs = json.loads(_holdfast(["jobs", "list", "--output", "json"], environment))
    return jobs[0]["step"] or 0 if jobs else 0


def _holdfast(arguments: Sequence[str], environment: dict[str, str]) -> str:
    command = [HOLDFAST, *arguments]
    return subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, text=True
    ).stdout


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{holds.__qualname__}: not true after {_TIMEOUT_S:.0f} s")
        time.sleep(1)


@contextmanager
def _running(
    arguments: Sequence[str], environment: dict[str, str], folder: str | None = None
) -> Iterator[None]:
    """A command in the background, in a working directory."""
    process = subprocess.Popen(
        [HOLDFAST, *arguments], env=environment, cwd=folder, stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _page() -> Iterator[Page]:
    """A page of the machine's Chromium."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise FileNotFoundError("Chromium not found; install it: apt-get install chromium")
    with sync_playwright() as playwright:
        # Chromium has no sandbox for root, as whom containers run.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=flags)
        yield browser.new_page(viewport={"width": 1200, "height": 900}, device_scale_factor=1.15)
        browser.close()


def _log_in(page: Page, token: str) -> None:
    _wait_until(_is_served)
    page.goto(f"http://127.0.0.1:{_PORT}/")
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    page.locator(".status", has_text="Live").wait_for()


def _is_served() -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", _PORT)) == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
