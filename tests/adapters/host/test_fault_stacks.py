"""Stacks that real processes write themselves when they are asked."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.host.fault_stacks import parsed, requested_threads

ROOT = Path(__file__).parents[3]

TRAIN = """
import threading, time
from holdfast import training
def reads():
    time.sleep(600)
def never_returns():
    print("there", flush=True)
    time.sleep(600)
{before}
threading.Thread(target=reads, daemon=True).start()
training.step(1)
never_returns()
"""

RESET = """
import signal
from holdfast.kit.stack_requests import request_signal
training.step(0)
signal.signal(request_signal(), signal.SIG_DFL)
"""

OWN = """
import signal
from holdfast.kit.stack_requests import request_signal
signal.signal(request_signal(), lambda *_: print("handled", flush=True))
"""


@contextmanager
def training(folder: Path, before: str = "", **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", TRAIN.format(before=before)],
        env={**os.environ, "HOLDFAST_PROGRESS_FILE": str(folder / "steps"), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def soon() -> float:
    return time.monotonic() + 60


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_process_that_reports_steps_writes_its_stacks_and_runs_on(
    tmp_path: Path, rank: str
) -> None:
    with training(tmp_path, RANK=rank) as process:
        for _ in range(2):
            main, other = requested_threads(process.pid, soon())
            assert [one.function for one in main.frames] == ["never_returns", "<module>"]
            assert main.frames[0].file == "<string>"
            assert main.frames[0].line in (7, 8), "what it has printed is read before it sleeps"
            assert other.frames[0].function == "reads"
        assert process.poll() is None


@pytest.mark.parametrize(
    ("before", "environment"), [("", {"HOLDFAST_PROGRESS_FILE": ""}), (OWN, {}), (RESET, {})]
)
def test_a_process_that_takes_no_requests_gets_no_signal(
    tmp_path: Path, before: str, environment: dict[str, str]
) -> None:
    with training(tmp_path, before, **environment) as process:
        assert requested_threads(process.pid, soon()) == ()
        time.sleep(0.1)
        assert process.poll() is None
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == "", "its own handler was not called"


def test_a_stopped_process_has_no_stacks_and_continues(tmp_path: Path) -> None:
    with training(tmp_path) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert requested_threads(process.pid, soon()) == ()
        os.kill(process.pid, signal.SIGCONT)
        assert requested_threads(process.pid, soon())
        assert process.poll() is None


def test_a_process_that_has_ended_has_no_stacks(tmp_path: Path) -> None:
    with training(tmp_path) as process:
        pid = process.pid
    assert requested_threads(pid, soon()) == ()


def inspected(tmp_path: Path, python: Path, pid: int, until: float) -> dict[str, Any]:
    """Return what an inspection without py-spy finds of rank 3."""
    module = "holdfast.adapters.host.rank_findings"
    files = (tmp_path / "dump", tmp_path / "pipe")
    done = subprocess.run(
        [python, "-m", module, "n", *files, "0", str(until), f"3:{pid}"],
        env={"PATH": "/nowhere", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )
    [seen] = json.loads(done.stdout)["snapshots"]
    return seen


def test_an_inspection_without_py_spy_has_the_stacks(tmp_path: Path, bare_python: Path) -> None:
    with training(tmp_path) as process:
        seen = inspected(tmp_path, bare_python, process.pid, until=soon() + 60)

    assert (seen["rank"], seen["state"], seen["note"]) == (3, "S", "")
    assert seen["frames"][0]["function"] == "never_returns"
    assert [one["frames"][0]["function"] for one in seen["helpers"]] == ["reads"]


def test_an_inspection_that_started_late_has_the_states(tmp_path: Path) -> None:
    with training(tmp_path) as process:
        os.kill(process.pid, signal.SIGSTOP)
        seen = inspected(tmp_path, Path(sys.executable), process.pid, until=0.0)

    assert (seen["rank"], seen["state"], seen["frames"]) == (3, "T", [])
    assert seen["note"] == "no stack: the time limit of the inspection was reached"


def test_the_names_that_newer_interpreters_write_are_read() -> None:
    text = (
        "Thread 0x00007f1 [loader] (most recent call first):\n"
        '  File "/usr/lib/queue.py", line 171 in get\n'
        "  ...\n\n"
        "Current thread 0x00007f2 [python] (most recent call first):\n"
        '  File "/w/train.py", line 9 in <module>\n'
    )

    main, loader = parsed(text)

    assert (main.name, main.frames[0].file, main.frames[0].line) == ("python", "/w/train.py", 9)
    assert (loader.name, len(loader.frames), loader.frames[0].function) == ("loader", 1, "get")


@given(st.text(max_size=300))
def test_no_output_raises(text: str) -> None:
    assert parsed(text) == ()
