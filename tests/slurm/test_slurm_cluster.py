"""The throw-away cluster itself: what tests do to its machines happens to them."""

import os
import time
from pathlib import Path

from slurm_fleet_at_work import on_both_versions, stays

from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

BEAT = "while :; do date +%N > {}; sleep 0.05; done"


def beating(slurm: SlurmCluster, *options: str) -> tuple[str, Path]:
    """A job that writes a file all the time."""
    file = slurm.folder / "beat"
    job = slurm.submit("-N1", "-w", "node1", *options, script=BEAT.format(file))
    slurm.until(file.exists)
    return job, file


def beats(slurm: SlurmCluster, file: Path) -> bool:
    before = file.stat().st_mtime_ns
    try:
        slurm.until(lambda: file.stat().st_mtime_ns != before)
    except Exception:  # noqa: BLE001 - it has stopped
        return False
    return True


def is_still(file: Path) -> bool:
    before = file.stat().st_mtime_ns
    stays(lambda: file.stat().st_mtime_ns == before, 0.5)
    return True


@on_both_versions
def test_a_power_loss_ends_everything_on_the_machine_at_once(slurm: SlurmCluster) -> None:
    _, file = beating(slurm)

    slurm.machines["node1"].power_off()

    assert is_still(file)
    assert not slurm.machines["node1"].is_on


def test_without_its_slurmd_a_job_runs_on(slurm: SlurmCluster) -> None:
    _, file = beating(slurm)

    slurm.machines["node1"].kill_slurmd()

    assert beats(slurm, file)


def test_a_machine_that_is_cut_off_runs_on_unheard(slurm: SlurmCluster) -> None:
    _, file = beating(slurm)

    slurm.machines["node1"].cut_off()

    slurm.until(lambda: "NOT_RESPONDING" in slurm.state("node1"))
    assert beats(slurm, file)
    slurm.machines["node1"].reconnect()


def test_a_reboot_under_a_job_is_noticed_when_slurmd_is_back(slurm: SlurmCluster) -> None:
    job, _ = beating(slurm)
    before = slurm.node("node1")["BootTime"]

    slurm.machines["node1"].power_off()
    time.sleep(1.5)  # Slurm compares the seconds of a boot with that of the last answer
    slurm.machines["node1"].boot()

    slurm.until(lambda: slurm.jobs()[job] == "PENDING")
    slurm.until(lambda: slurm.node("node1")["BootTime"] not in (before, "None"))


@on_both_versions
def test_a_failing_prolog_drains_the_node_until_it_is_mended(slurm: SlurmCluster) -> None:
    slurm.fail_prolog("node1")
    slurm.submit("-N1", "-w", "node1", script="true")
    slurm.until(lambda: "DRAIN" in slurm.state("node1"))
    assert slurm.node("node1")["Reason"] == "Prolog error"

    slurm.fail_prolog("node1", fails=False)
    slurm.run("scontrol", "update", "nodename=node1", "state=resume")

    slurm.run("srun", "-w", "node1", "true")


def test_a_failing_epilog_drains_the_node(slurm: SlurmCluster) -> None:
    slurm.fail_epilog("node2")

    slurm.run("srun", "-w", "node2", "true")

    slurm.until(lambda: "DRAIN" in slurm.state("node2"))


@on_both_versions
def test_lost_gpus_are_seen_at_the_next_start(programs: SlurmPrograms) -> None:
    with SlurmCluster(programs, nodes=("node1",), gpus=2) as slurm:
        slurm.run("srun", "--gres=gpu:2", "true")

        slurm.lose_gpus("node1", left=1)

        slurm.until(lambda: "INVALID_REG" in slurm.state("node1"))


def test_what_a_saved_controller_knows_outlives_it(slurm: SlurmCluster) -> None:
    slurm.run("scontrol", "update", "nodename=node1", "state=fail", "reason=x")

    slurm.stop_controller()
    slurm.start_controller()

    slurm.until(lambda: slurm.state("node1") == {"IDLE", "FAIL"})


def test_nothing_is_left_behind(programs: SlurmPrograms) -> None:
    with SlurmCluster(programs, nodes=("node1",)) as slurm:
        beating(slurm)
        mark = str(slurm.folder).encode()

    assert not slurm.folder.exists()
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and mark in _command(pid)]
    assert left == []


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
