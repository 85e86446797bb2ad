"""Supervised steps whose loss is NaN: reported, stopped, restarted, and never without end."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_fleet_at_work import a_fleet
from supervised_cluster import Supervised, supervised_cluster

from tests.engines.slurm_cluster import SlurmPrograms

TRAINS = """
import io, os, pathlib, pickle, sys, time, zipfile
from holdfast import training
bad = float(os.environ["BAD"])
rank = int(os.environ.get("RANK", os.environ["SLURM_PROCID"]))
folder = pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
tracker = folder / "latest_checkpointed_iteration.txt"
def saved():
    return int(tracker.read_text()) if tracker.exists() else 0
done = saved()
seen = {name: os.environ.get("HOLDFAST_" + name) for name in ("SKIP_STEPS", "RESTART_REASON")}
print(f"rank {rank} resumes at {done} with {seen}", flush=True)
is_poisoned = False
last = int(os.environ.get("LAST", "12"))
is_stopped = os.environ.get("HOLDFAST_LOSS_ACTION") in ("stop", "skip", "rollback")
for step in range(done + 1, last + 1):
    if training.is_skipped(step):
        print("skipped", step, flush=True)
        continue
    always = os.environ.get("ALWAYS") and step > done
    is_poisoned = is_poisoned or step == bad or bool(always)
    loss = float("nan") if is_poisoned else 2.5
    if rank == 0 and not (is_poisoned and os.environ.get("CHECKS")):
        path = folder / f"iter_{step:07d}/mp_rank_00/model_optim_rng.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("archive/data.pkl", pickle.dumps(step, protocol=2))
        new = folder / "new"  # another rank may read it now
        new.write_text(str(step))
        new.replace(tracker)
    while rank and not os.environ.get("CHECKS") and saved() < step:
        time.sleep(0.01)  # as after a barrier
    if os.environ.get("HOLDFAST_PROGRESS_FILE"):
        training.step(step, loss=loss)
    else:
        print(f"step: {step:2}  loss: {loss:8.5f}  grad_norm:  1.2000", flush=True)
    if is_poisoned and os.environ.get("CHECKS"):
        sys.exit(3)
    time.sleep(0.25)
    while is_poisoned and is_stopped and step == last:
        time.sleep(0.1)  # its supervisor stops it, however busy the machine is
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def cluster(
    programs: SlurmPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Supervised]:
    with supervised_cluster(programs, tmp_path_factory.mktemp("supervised")) as cluster:
        (cluster.prefix / "train.py").write_text(TRAINS, encoding="utf-8")
        yield cluster


def submitted(
    cluster: Supervised,
    name: str,
    *,
    nodes: int = 1,
    program: str = sys.executable,
    **variables: object,
) -> str:
    """Submit a job that trains; its checkpoints are in a directory of that name."""
    folder = cluster.prefix / name
    folder.mkdir()
    exports = {"BAD": 0, "HOLDFAST_CHECKPOINT_DIR": folder, **variables}
    lines = [f"export {key}={value}" for key, value in exports.items()]
    command = f"srun --auto-resume=1 {program} {cluster.prefix}/train.py"
    script = "\n".join([*lines, command, "echo code $?"])
    return cluster.submit(f"-N{nodes}", script=script)


def test_each_action_is_carried_out(cluster: Supervised) -> None:
    jobs = {
        "ask": submitted(cluster, "ask", BAD=5, LAST=50),
        "stop": submitted(cluster, "stop", BAD=5, HOLDFAST_LOSS_ACTION="stop"),
        "skip": submitted(cluster, "skip", BAD=5, HOLDFAST_LOSS_ACTION="skip", nodes=2),
    }
    output = {name: cluster.ended(job) for name, job in jobs.items()}

    asked = "JobLossFault: the loss is nan at step 5; the job is still running"
    assert output["ask"].count(asked) == 1
    assert "code 0" in output["ask"]
    assert "cancelled: LossNotFinite: the loss is nan at step 5" in output["stop"]
    assert "not resumed: loss_action is stop: check the learning rate" in output["stop"]
    assert output["stop"].count("resumes at") == 1
    assert "code 0" not in output["stop"]

    text = output["skip"]
    assert "code 0" in text, text
    assert text.count("cancelled: LossNotFinite") == 1  # although two ranks printed it at once
    again = "with {'SKIP_STEPS': '4,5', 'RESTART_REASON': 'LossNotFinite'}"
    assert text.count(again) == 2, text
    assert f"rank 0 resumes at 4 {again}" in text
    assert "skipped 5" in text
    assert text.count("done") == 2
    assert "attempt 0 saved it after step 5 (LossNotFinite)" in text
    aside = {one.name for one in (cluster.prefix / "skip.set-aside").iterdir()}
    assert "iter_0000005" in aside
    assert "iter_0000004" not in aside
    assert cluster.restarts(jobs["skip"]) == 0
    assert "loss-fault=0:LossNotFinite:5:ask" in cluster.comment(jobs["ask"])
    assert "loss-fault=0:LossNotFinite:5:skip" in cluster.comment(jobs["skip"])


def test_a_loss_that_is_bad_after_every_restart_ends_the_job(cluster: Supervised) -> None:
    job = submitted(cluster, "always", ALWAYS=1, HOLDFAST_LOSS_ACTION="rollback")
    text = cluster.ended(job)

    assert 2 <= text.count("resumes at") <= 4, text
    assert f"job {job} not resumed: " in text
    assert "code 0" not in text


def test_a_job_that_skips_no_step_is_informed(cluster: Supervised) -> None:
    job = submitted(cluster, "deaf", ALWAYS=1, HOLDFAST_LOSS_ACTION="skip")
    text = cluster.ended(job)

    assert f"job {job} not resumed: " in text
    assert "code 0" not in text
    assert text.count("resumes at") <= 4


def test_a_job_that_ends_itself_is_restarted_for_its_loss(cluster: Supervised) -> None:
    job = submitted(cluster, "checks", BAD=5, CHECKS=1, HOLDFAST_LOSS_ACTION="skip", nodes=2)
    text = cluster.ended(job)

    assert "code 0" in text, text
    assert "rank 0 resumes at 4 with" in text
    job = submitted(cluster, "crash", BAD=5, CHECKS=1, nodes=2)
    text = cluster.ended(job)
    assert "not resumed: no node of the step has a fault" in text
    assert "JobLossFault" in text


def test_losses_are_read_from_a_progress_file_on_a_shared_file_system(cluster: Supervised) -> None:
    job = submitted(
        cluster, "file", BAD=5, HOLDFAST_LOSS_ACTION="skip", nodes=2,
        HOLDFAST_PROGRESS_FILE=cluster.prefix / "progress",
    )  # fmt: skip
    text = cluster.ended(job)

    assert "code 0" in text, text
    assert "step: " not in text
    assert text.count("cancelled: LossNotFinite: the loss is nan at step 5") == 1


def test_ranks_below_holdfast_launch_are_restarted_with_their_step(cluster: Supervised) -> None:
    job = submitted(
        cluster, "launch", BAD=5, HOLDFAST_LOSS_ACTION="skip", HOLDFAST_PROGRESS_FILE="-",
        program=f"{sys.executable} -m holdfast launch --nproc-per-node 2",
    )  # fmt: skip
    text = cluster.ended(job)

    assert "code 0" in text, text
    assert text.count("cancelled: LossNotFinite: the loss is nan at step 5") == 1
    assert "rank 0 resumes at 4 with {'SKIP_STEPS': '4,5'" in text
    assert "holdfast: step 12 loss 2.5" in text


def test_a_truncated_output_is_read_on(cluster: Supervised) -> None:
    job = submitted(cluster, "cut", BAD=10, HOLDFAST_LOSS_ACTION="stop")
    cluster.until_said(job, "step:  4")
    os.truncate(Path(cluster.slurm.folder) / f"slurm-{job}.out", 0)
    text = cluster.ended(job)

    assert "resumes at" not in text
    assert "cancelled: LossNotFinite: the loss is nan at step 10" in text


def test_invalid_settings_are_named(cluster: Supervised) -> None:
    job = submitted(
        cluster, "wrong", BAD=11, HOLDFAST_LOSS_ACTION="rollbak", HOLDFAST_LOSS_WINDOW="-1"
    )
    text = cluster.ended(job)

    assert "HOLDFAST_LOSS_ACTION is 'rollbak', expected one of ask, stop, rollback, skip" in text
    assert "HOLDFAST_LOSS_WINDOW is '-1', expected a whole number" in text
    assert "code 0" in text


def test_each_controller_emits_the_fault_of_a_running_job_once(
    cluster: Supervised, tmp_path: Path
) -> None:
    with a_fleet(cluster.slurm, tmp_path) as fleet:
        first = fleet.control()
        job = submitted(cluster, "events", BAD=5, HOLDFAST_LOSS_ACTION="skip", LAST=150)
        told = f"JobLossFault: job/{job}: LossNotFinite at step 5; its supervisor restarts the step"
        fleet.until(lambda: told in first.log)
        cluster.until_said(job, "step:  7")
        assert first.log.count("JobLossFault") == 1
        first.kill()

        second = fleet.control()
        fleet.until(lambda: told in second.log)
        assert second.log.count("JobLossFault") == 1
        assert "AttemptStopped" not in first.log + second.log  # it is left to its supervisor
        cluster.slurm.run("scancel", job)
