"""The saves of a supervised step: verified while it runs, and restored from a copy when lost."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_fleet_at_work import on_both_versions
from supervised_cluster import Supervised, supervised_cluster
from test_slurm_rollback import TRACKER, saved

from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.apps.main import run
from tests.engines.checkpoint_watches import ancestors_of, watches_of
from tests.engines.slurm_cluster import SlurmPrograms

HANGS_AT_FIRST = r"""
srun -N2 --auto-resume=1 sh -c '
    echo attempt ${{HOLDFAST_ATTEMPT-first}} on $SLURMD_NODENAME resumes at $(cat {tracker})
    [ -n "$HOLDFAST_ATTEMPT" ] || exec sleep 600
'
echo code $?
"""


@pytest.fixture(scope="module")
def cluster(
    programs: SlurmPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Supervised]:
    with supervised_cluster(programs, tmp_path_factory.mktemp("supervised")) as cluster:
        yield cluster


def settled(*paths: Path) -> None:
    """Let files look as if they were saved some time ago."""
    at = time.time() - 60
    for path in paths:
        for one in (path, path.parent, path.parent.parent):
            os.utime(one, (at, at))


def test_the_saves_of_a_step_are_verified_while_it_runs(
    cluster: Supervised, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    script = (
        "srun --auto-resume=1 sh -c 'echo watched by others: $HOLDFAST_CHECKPOINT_WATCH; sleep 600'"
    )
    job = cluster.submit("-N1", f"--comment=checkpoint={folder}", script=script)
    cluster.until_said(job, "watched by others: 0")
    manifests = DirectoryManifests(folder)

    settled(saved(folder, 1))
    cluster.slurm.until(lambda: manifests.read("iter_0000001") is not None)
    first = manifests.read("iter_0000001")
    assert first is not None
    assert first.is_good
    broken = saved(folder, 2)
    broken.write_bytes(b"not an archive" * 100)
    settled(broken)
    cluster.until_said(job, "iter_0000002: damaged")  # in the output of the job

    [watch] = watches_of(folder)
    os.kill(watch, 0)
    cluster.slurm.run("scancel", job)
    cluster.ended(job)
    cluster.slurm.until(lambda: watches_of(folder) == [])


def test_a_watch_is_not_started_if_that_is_turned_off_and_ends_with_its_supervisor(
    cluster: Supervised, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    settled(saved(folder, 1))
    steps = f"srun --auto-resume=1 sh -c 'until [ -e {tmp_path}/end ]; do sleep 0.1; done'"
    comment = f"--comment=checkpoint={folder}"
    off = cluster.submit("-N1", comment, script=f"export HOLDFAST_CHECKPOINT_WATCH=0; {steps}")
    cluster.until_said(off, "process_task_init")
    on = cluster.submit("-N1", comment, script=f"echo $$ >{tmp_path}/script; {steps}")
    cluster.slurm.until(lambda: watches_of(folder))
    [watch] = watches_of(folder)
    script = int((tmp_path / "script").read_text())
    assert script in ancestors_of(watch)

    supervisor = ancestors_of(watch)[0]
    os.kill(supervisor, signal.SIGKILL)
    cluster.slurm.until(lambda: watches_of(folder) == [])
    (tmp_path / "end").touch()
    cluster.ended(on)
    cluster.ended(off)


@on_both_versions
def test_a_step_resumes_from_a_copy_when_its_node_is_lost_and_no_checkpoint_is_good(
    cluster: Supervised, tmp_path: Path
) -> None:
    slurm = cluster.slurm
    folder, copies = tmp_path / "checkpoints", tmp_path / "copies"
    paths = [saved(folder, number) for number in (1, 2)]
    settled(*paths)
    assert run(["checkpoint", "mirror", str(folder), str(copies), "--once"]) == 0
    script = HANGS_AT_FIRST.format(tracker=folder / TRACKER)
    job = cluster.submit(
        "-N3", "--no-kill", f"--comment=mode=step checkpoint={folder}",
        script=f"export HOLDFAST_CHECKPOINT_COPIES={copies}\n{script}",
    )  # fmt: skip
    cluster.until_said(job, "TaskID: 0 process_task_init")
    names = slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
    first, bad, _ = slurm.run("scontrol", "show", "hostnames", names).split()
    cluster.until_said(job, f"attempt first on {bad} resumes at 2")
    for path in paths:
        path.write_bytes(b"not an archive" * 100)

    slurm.machines[bad].power_off()

    output = cluster.ended(job)
    assert f"iter_0000002 was restored from {copies}" in output
    assert f"attempt 1 on {first} resumes at 2" in output
    assert "code 0" in output
    moved = folder.with_name("checkpoints.set-aside")
    assert sorted(path.name for path in moved.iterdir()) == ["iter_0000001", "iter_0000002"]
    slurm.machines[bad].boot()
    slurm.until(lambda: "NOT_RESPONDING" not in slurm.state(bad))
    if slurm.state(bad) & {"FAIL", "DOWN", "DRAIN"}:
        cluster.update(bad, state="resume")


def test_saves_of_a_step_are_copied_while_it_runs_and_restored_when_they_are_lost(
    cluster: Supervised, tmp_path: Path
) -> None:
    slurm = cluster.slurm
    folder, copies = tmp_path / "checkpoints", tmp_path / "copies"
    folder.mkdir()
    script = HANGS_AT_FIRST.format(tracker=folder / TRACKER)
    job = cluster.submit(
        "-N3", "--no-kill", f"--comment=mode=step checkpoint={folder}",
        script=f"export HOLDFAST_CHECKPOINT_MIRROR={copies}\n{script}",
    )  # fmt: skip
    cluster.until_said(job, "TaskID: 0 process_task_init")
    names = slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
    first, bad, _ = slurm.run("scontrol", "show", "hostnames", names).split()
    cluster.until_said(job, f"attempt first on {bad} resumes at")
    settled(saved(folder, 1))
    slurm.until(lambda: list(copies.glob("iter_0000001@*/manifest.json")))
    shutil.rmtree(folder)

    slurm.machines[bad].power_off()

    output = cluster.ended(job)
    assert f"iter_0000001 was restored from {copies}" in output
    assert f"attempt 1 on {first} resumes at 1" in output
    assert "code 0" in output
    slurm.machines[bad].boot()
    slurm.until(lambda: "NOT_RESPONDING" not in slurm.state(bad))
    if slurm.state(bad) & {"FAIL", "DOWN", "DRAIN"}:
        cluster.update(bad, state="resume")


def test_a_step_waits_for_its_copies_and_starts_once_they_are_there(
    cluster: Supervised, tmp_path: Path
) -> None:
    folder, copies = tmp_path / "checkpoints", tmp_path / "copies"
    path = saved(folder, 1)
    settled(path)
    assert run(["checkpoint", "mirror", str(folder), str(copies), "--once"]) == 0
    path.write_bytes(b"not an archive" * 100)
    hidden = copies.rename(tmp_path / "hidden")
    copies.write_text("not a directory")

    job = cluster.submit(
        "-N1", f"--comment=checkpoint={folder}",
        script=f"export HOLDFAST_CHECKPOINT_COPIES={copies}\n"
        f"srun --auto-resume=1 true; echo code $?; cat {folder / TRACKER}",
    )  # fmt: skip
    cluster.until_said(job, "the job waits for a copy; repair the location of the copies")
    assert path.read_bytes().startswith(b"not an archive")
    copies.unlink()
    hidden.rename(copies)

    output = cluster.ended(job)
    assert output.count("the job waits") == 1
    assert f"iter_0000001 was restored from {copies}" in output
    assert output.splitlines()[-2:] == ["code 0", "1"]
