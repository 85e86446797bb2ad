"""What import contracts cannot see: a module that is imported while the program runs."""

import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import project

CONTRACT = "The agent stays light"

TLS = {"ssl", "http.client"}
"""Several MiB, which an agent on Slurm or on one machine has no use for."""

LOAD_ALL = """
import importlib, pkgutil, sys
import holdfast.apps.agent.main, holdfast.apps.main, holdfast.detectors
for module in pkgutil.iter_modules(holdfast.detectors.__path__, "holdfast.detectors."):
    importlib.import_module(module.name)
print(*sys.modules)
"""

DECISIONS = {
    "launch": {
        "crash_text",
        "evidence_precedence",
        "exit_meanings",
        "failure_lines",
        "failure_signatures",
        "flight_recorder",
        "hang_verdict",
        "inspection_tries",
        "kernel_causes",
        "kernel_evidence",
        "kernel_lines",
        "launch_causes",
        "launch_events",
        "launch_inspection",
        "launch_losses",
        "launch_nodes",
        "launch_orders",
        "launch_rounds",
        "launch_rungs",
        "launch_runs",
        "launch_state",
        "rank_accelerators",
        "loss_faults",
        "loss_settings",
        "notice_lines",
        "permanent_causes",
        "rank_snapshots",
        "restart_rungs",
        "step_times",
        "storage_waits",
    },
    "slurm supervise": {
        "fallback_signals",
        "hang_settings",
        "job_activity",
        "logged_steps",
        "loss_faults",
        "loss_settings",
        "notice_lines",
        "restart_rungs",
        "save_times",
        "step_line_rows",
        "step_lines",
        "step_progress",
        "step_rate",
        "step_restart",
        "step_times",
    },
}
"""Decisions that a process takes itself; standard library alone."""

START = """
import atexit, sys
from holdfast.apps.main import run
atexit.register(lambda: print(*sys.modules, file=sys.__stdout__))
run(sys.argv[1:])
"""


def heavy() -> set[str]:
    contracts = project()["tool"]["importlinter"]["contracts"]
    modules = next(one["forbidden_modules"] for one in contracts if one["name"] == CONTRACT)
    return set(modules)


def loaded_by(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", *arguments], capture_output=True, check=True, encoding="utf-8"
    )
    return set(done.stdout.splitlines()[-1].split())


def loaded_heavy(modules: set[str]) -> set[str]:
    return {
        module for module in modules if any(f"{module}.".startswith(f"{name}.") for name in heavy())
    }


def test_the_agent_with_every_detector_loads_nothing_heavy() -> None:
    modules = loaded_by(LOAD_ALL)

    assert "holdfast.apps.agent.main" in modules
    assert TLS.isdisjoint(modules)
    assert loaded_heavy(modules) == set()


@pytest.mark.parametrize("process", ["agent", "_node", "launch", "slurm supervise"])
def test_a_light_process_starts_without_anything_heavy(process: str) -> None:
    modules = loaded_by(START, *process.split(), "--help")

    assert "argparse" in modules
    decisions = {f"holdfast.decisions.{name}" for name in DECISIONS.get(process, ())}
    allowed = {"holdfast.decisions", *decisions} if decisions else set()
    assert loaded_heavy(modules) <= allowed


def test_tls_is_loaded_only_where_the_agent_reports_to_kubernetes(tmp_path: Path) -> None:
    nowhere = [*("--kmsg", str(tmp_path / "none")), *("--report-dir", str(tmp_path))]
    config = tmp_path / "agent.toml"
    config.write_text('[kubernetes]\nserver = "no address"\n', encoding="utf-8")

    without = loaded_by(START, "agent", "--once", *nowhere)
    (tmp_path / "none").touch()
    with_it = loaded_by(START, "agent", "--node", "n1", "--config", str(config), *nowhere)

    assert TLS.isdisjoint(without)
    assert with_it >= TLS
    assert loaded_heavy(with_it) == set()


def test_a_heavy_import_would_be_seen() -> None:
    assert "click" in loaded_heavy(loaded_by(START, "--help"))
