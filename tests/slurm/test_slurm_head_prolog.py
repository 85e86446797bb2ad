"""The check of PrologSlurmctld: no job begins where a fault is known, and none is held for it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from final_states import FinalStates
from slurm_fleet_at_work import REPLACE_XID, Fleet, on_both_versions

from holdfast.apps.main import run
from holdfast.model.names import Reason, SlurmReason
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

DIAG = Path(__file__).parents[1] / "recordings/dcgm/diag4-memory.json"


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def slurm(programs: SlurmPrograms, tmp_path: Path) -> Iterator[SlurmCluster]:
    """Nodes are reached by a program in the place of ssh; the GPUs of node2 are bad."""
    program(tmp_path / "dcgmi", f"[ $SLURMD_NODENAME = node2 ] && {{ cat {DIAG}; exit 226; }}\n"
            f"cat {DIAG.with_name('diag4-pass.json')}")  # fmt: skip
    there = program(
        tmp_path / "ssh", f'node=$1; shift; exec "$@" --config {tmp_path}/$node.toml'
        f" --lock {tmp_path}/$node.lock",
    )  # fmt: skip
    paths = f"PATH={programs.path} PYTHONPATH={os.environ.get('PYTHONPATH', '')}"
    check = program(
        tmp_path / "prolog-slurmctld", f"export {paths} SLURM_CONF=$(cat {tmp_path}/conf)\n"
        f"exec {sys.executable} -m holdfast check prolog --gpus all --through {there}"
        f" --state-dir {tmp_path}/state 2>> {tmp_path}/said",
    )  # fmt: skip
    settings = {"PrologSlurmctld": str(check)}
    with SlurmCluster(programs, settings=settings) as cluster:
        (tmp_path / "conf").write_text(str(cluster.conf), encoding="utf-8")
        for name, machine in cluster.machines.items():
            text = f'root = "{machine.root}"\ncommand_path = "{tmp_path}"\n[expected]\ngpus = 8\n'
            (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
        yield cluster


@on_both_versions
def test_a_job_goes_where_nothing_is_broken_and_is_never_parked(
    fleet: Fleet, final: FinalStates
) -> None:
    """The kernel tells of node1, DCGM of node2, while no controller is at work."""
    fleet.control(provider=fleet.by_command()).kill()
    fleet.machines["node1"].log(REPLACE_XID)
    report = fleet.shared / "node1.json"
    fleet.until(lambda: Reason.XID_REPLACE in report.read_text(encoding="utf-8"))

    job = fleet.slurm.submit("-N2", script='echo "began on $SLURM_JOB_NODELIST"')

    seen = set()

    def has_ended() -> bool:
        state, priority = fleet.slurm.run("squeue", "-ht", "all", "-o", "%T %Q").split()
        seen.add(int(priority) if state == "PENDING" else 1)
        return state == "COMPLETED"

    fleet.until(has_ended)
    assert 0 not in seen
    output = (fleet.slurm.folder / f"slurm-{job}.out").read_text(encoding="utf-8")
    assert output == "began on node[3-4]\n"
    said = (fleet.folder / "said").read_text(encoding="utf-8")
    assert f"node1: {Reason.XID_REPLACE}" in said
    assert f"node2: {Reason.CHECK_FAILED}" in said
    for node in ("node1", "node2"):
        assert "FAIL" in fleet.slurm.state(node)
        assert fleet.reason(node).startswith(f"{SlurmReason.HOLDFAST} ")
    fleet.control(provider=fleet.by_command(), unavailable=3, wait=False)
    fleet.until(lambda: sorted(fleet.orders) == [["replace", "node1"], ["replace", "node2"]])
    for node in ("node1", "node2"):
        fleet.machines[node].renew()
    final.check(fleet, "prolog-slurmctld", node="node1", job=job)


def test_what_cannot_be_found_out_passes_and_is_reported(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-2]")
    check = ["check", "prolog", "--state-dir", str(tmp_path)]

    assert run(check) == 0
    assert "passed without a result: --state-dir: " in capsys.readouterr().err

    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[")
    assert run(check) == 0
    assert "passed without a result: " in capsys.readouterr().err
