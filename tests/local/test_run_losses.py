"""Jobs on ``holdfast run`` whose loss is NaN: reported, stopped, or restarted before that step."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "frameworks"
SCRIPT = SCRIPTS / "torch_nan.py"
DEADLINE_S = 300
"""For a machine that is busy with other tests."""

DIVERGES = """
import sys, time
from holdfast import training
for step in range(40):
    training.step(step, loss=float("nan") if step >= 3 else 1.0)
    time.sleep(0.05)
"""


def configured(folder: Path, action: str) -> list[str]:
    config = folder / "run.toml"
    config.write_text(f'[jobs]\nloss_action = "{action}"\n', encoding="utf-8")
    return ["--config", str(config)]


def test_by_default_a_nan_is_reported_once_and_the_job_runs_on(run):
    ended = run.run("--", sys.executable, "-c", DIVERGES)

    assert ended.returncode == 0, ended.stdout
    assert len(re.findall("JobLossFault", ended.stdout)) == 1
    assert re.search(
        r"JobLossFault: job: the loss is nan at step 3; the job is still running\. "
        r".+ cancel the job",
        ended.stdout,
    ), ended.stdout


def test_a_nan_stops_the_job_for_good_if_so_configured(run, tmp_path):
    ended = run.run(*configured(tmp_path, "stop"), "--", sys.executable, "-c", DIVERGES)

    assert ended.returncode == 1
    assert "LossNotFinite" in ended.stdout
    assert run.record().attempt == 1
    assert run.record().reason.startswith("loss_action is stop: check the learning rate")


@pytest.mark.frameworks
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_job_of_pytorch_resumes_before_a_nan_and_skips_its_batch(run, tmp_path):
    folder = tmp_path / "ckpt"

    ended = run.run(
        *configured(tmp_path, "skip"), "--checkpoint-dir", str(folder),
        "--", sys.executable, str(SCRIPT), timeout=DEADLINE_S,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stdout
    assert "the loss is nan at step 12" in ended.stdout
    assert "suspected: attempt 1 saved it after step 12 (LossNotFinite)" in ended.stdout
    assert run.record().attempt == 2
    assert run.dir.log(2, 0).read_text().splitlines() == [
        "resumed at 11", "skipped 12", "weights are finite: True",
    ]  # fmt: skip
    aside = {one.name for one in folder.with_name("ckpt.set-aside").iterdir()}
    assert {"step-12.pt"} <= aside
    assert "step-11.pt" not in aside


@pytest.mark.frameworks
@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
def test_a_nan_that_the_trainer_of_hugging_face_leaves_out_of_its_log_stops_the_job(run, tmp_path):
    ended = run.run(
        *configured(tmp_path, "stop"), "--max-app-retries", "0",
        "--", sys.executable, str(SCRIPTS / "hf_trainer_nan.py"), timeout=DEADLINE_S,
    )  # fmt: skip

    log = run.dir.log(1, 0).read_text(encoding="utf-8")
    assert ended.returncode == 1, ended.stdout
    assert re.search("'loss': '?0(.0)?'?, 'grad_norm': '?nan", log), log
    assert "'loss': nan" not in log
    assert "'loss': 'nan'" not in log
    assert re.search(r"the loss is nan at step [5-8]\b", ended.stdout), ended.stdout


LOGS = """
import time
for step in range(1, 31):
    loss = float("nan") if step > 20 else 2.5
    print(f"step: {step:2}  loss: {loss:8.5f}  grad_norm:  1.2000", flush=True)
    time.sleep(0.1)
time.sleep(600)
"""


def test_steps_losses_and_hangs_are_found_in_the_log_of_a_known_framework(run):
    ended = run.run(
        "--hang-timeout", "3s", "--max-app-retries", "0", "--", sys.executable, "-c", LOGS
    )

    assert "the loss is nan at step 21; the job is still running" in ended.stdout
    assert "JobHung: no new step was reported for 3s, last step 30" in ended.stdout
    assert run.record().attempts[0].first_step == 1
    described = run.holdfast("jobs", "describe", "job").stdout
    assert re.search(r"Step rate: +[\d.]+ steps/s", described), described
