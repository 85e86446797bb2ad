"""Which processes of earlier runs a new run ends."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.adapters.local import lock
from holdfast.adapters.local.layout import RunDir, run_dir
from holdfast.adapters.local.machine import MARK, new_provider_id, node_name
from holdfast.apps.run import prepare


class Machines:
    """Processes that bear the mark of machines, in the directories of runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str) -> tuple[RunDir, subprocess.Popen[bytes]]:
        """Begin a run with one machine."""
        run, machine = run_dir(self.home, name), new_provider_id()
        (run.nodes / node_name(machine)).mkdir(parents=True)
        run.state.touch()
        process = subprocess.Popen(
            [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"],
            env={**os.environ, MARK: machine},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        self.processes.append(process)
        return run, process


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    yield found
    for process in found.processes:
        process.kill()
        process.communicate()


def test_what_killed_runs_left_is_ended_and_active_runs_continue(machines: Machines) -> None:
    _, left = machines.start("killed")
    run, active = machines.start("active")
    with lock.locked(run):
        assert prepare.sweep(machines.home) == 1
    assert left.wait(10) == -9
    assert active.poll() is None


def test_a_run_that_begins_while_another_one_sweeps_keeps_its_machines(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, left = machines.start("llm")
    begun: list[subprocess.Popen[bytes]] = []

    def then_begins(run: RunDir) -> bool:
        found = lock.is_held(run)
        if run == before and not begun:
            prepare.archive(before)
            begun.append(machines.start("llm")[1])
        return found

    monkeypatch.setattr(prepare, "is_held", then_begins)
    assert prepare.sweep(machines.home) == 1
    assert left.wait(10) == -9
    assert begun[0].poll() is None
