"""What is left in a real Slurm when Holdfast is taken off its machines."""

import os
from pathlib import Path

import pytest
from slurm_fleet_at_work import on_newest_version
from test_slurm_install import Machine

from holdfast.apps.exit_codes import ExitCode
from holdfast.model.errors import ConfigError
from tests.engines.slurm_cluster import SlurmCluster


@pytest.fixture
def machine(tmp_path: Path, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A head node of that cluster, with Holdfast installed."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    machine = Machine(tmp_path)
    machine.install("head", "--prolog")
    return machine


def test_a_script_that_slurm_still_runs_is_not_removed(
    machine: Machine, slurm: SlurmCluster
) -> None:
    script = machine.root / "etc/holdfast/prolog-slurmctld"
    conf = slurm.conf.read_text(encoding="utf-8")
    slurm.conf.write_text(f"{conf}\nPrologSlurmctld={script}\n", encoding="utf-8")
    slurm.run("scontrol", "reconfigure")

    refused = machine.run("uninstall")

    assert isinstance(refused.exception, ConfigError)
    assert f"slurm.conf still contains PrologSlurmctld={script}" in str(refused.exception)
    assert os.access(script, os.X_OK)
    slurm.conf.write_text(conf, encoding="utf-8")
    slurm.run("scontrol", "reconfigure")
    assert machine.run("uninstall").return_value == ExitCode.OK
    assert not script.exists()


@on_newest_version
def test_each_script_of_a_setting_is_found(machine: Machine, slurm: SlurmCluster) -> None:
    script = machine.root / "etc/holdfast/prolog-slurmctld"
    conf = slurm.conf.read_text(encoding="utf-8")
    lines = f"PrologSlurmctld=/bin/true\nPrologSlurmctld={script}\n"
    slurm.conf.write_text(f"{conf}\n{lines}", encoding="utf-8")
    slurm.run("scontrol", "reconfigure")

    refused = machine.run("uninstall")

    assert f"slurm.conf still contains PrologSlurmctld={script}" in str(refused.exception)


def test_nodes_and_reservations_of_holdfast_are_listed_with_what_restores_them(
    machine: Machine, slurm: SlurmCluster
) -> None:
    ours, others = "node1", "node2"
    reason = "Action:Replace holdfast: NvidiaGpuXidErrorPendingReplacement"
    slurm.run("scontrol", "update", f"nodename={ours}", "state=fail", f"reason={reason}")
    slurm.run("scontrol", "update", f"nodename={others}", "state=drain", "reason=cables")
    for name in ("holdfast-check-1", "somebodys"):
        slurm.run(
            *("scontrol", "create", "reservation", f"reservationname={name}", "starttime=now"),
            *("duration=60", "users=root", "flags=IGNORE_JOBS,OVERLAP", f"nodes={others}"),
        )

    done = machine.run("uninstall")

    assert [line for line in done.output.splitlines() if line.startswith("next:")] == [
        f"next: scontrol update nodename={ours} state=resume    # {reason}",
        "next: scontrol delete reservationname=holdfast-check-1",
    ]
