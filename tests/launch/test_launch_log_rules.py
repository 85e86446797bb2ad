"""Log rules under ``holdfast launch``: ranks restart by what their logs show."""

import json
import re
from pathlib import Path

import pytest
from launch.launched import launch

RULES = [
    {"name": "Ticks", "logPattern": "tick", "expectedRecurringFrequencyInSeconds": 1.5},
    {"name": "Weights", "logPattern": ".*weights are broken", "faultOnMatch": True},
    {"name": "Endless", "logPattern": ".*(a+)+$", "faultOnMatch": True},
]

TRAIN = """
import os, time
restarts, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
for number in range(5):
    print("tick", number, "a" * 60, "!", flush=True)
    time.sleep(0.1)
if restarts == "1" and rank == "1":
    print("weights are broken", flush=True)
if restarts != "2":
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.json").write_text(json.dumps(RULES), encoding="utf-8")
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    return tmp_path


def test_ranks_restart_by_what_their_logs_show(folder: Path):
    options = ("--nproc-per-node", 2, "--log-dir", folder / "logs")

    done = launch(*options, "--log-rules", folder / "rules.json", folder / "train.py")

    assert done.returncode == 0, done.stderr
    failures = re.findall(r"RankFailed: round (\d): rank (\d) on \S+: ([^;,]*)", done.stderr)
    assert failures == [
        ("1", "0", "LogStateHanging_Ticks: no line matched 'tick' for 1.5s"),
        ("2", "1", "LogStateHanging_Weights: rank 1 printed: weights are broken"),
    ]
    ignored = "JobUnwatched: log rule Endless is '.*(a+)+$', expected a regular expression that can"
    assert ignored in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "expected --log-dir as well"),
        (
            ("--log-dir", "logs", "--redirects", "2"),
            "expected --log-dir as well, and both streams in files",
        ),
        (
            ("--log-dir", "logs", "--tee", "0"),
            "expected --log-dir as well, and both streams in files",
        ),
        (
            ("--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:1", "--log-dir", "logs"),
            "expected --nnodes=1; on more nodes, use srun --auto-resume=1, Kubernetes or holdfast",
        ),
    ],
)
def test_rules_that_cannot_be_evaluated_are_refused(
    folder: Path, options: tuple[str, ...], message: str
):
    key = {"HOLDFAST_LAUNCH_KEY": "k" * 16}

    done = launch(*options, "--log-rules", folder / "rules.json", folder / "train.py", **key)

    assert done.returncode == 2
    assert f"--log-rules: {folder}/rules.json: {message}" in done.stderr


def test_a_mistake_in_the_rules_is_named(folder: Path):
    (folder / "rules.json").write_text('[{"name": "Steps", "logPattern": "step"}]')
    options = ("--log-dir", folder / "logs", "--log-rules", folder / "rules.json")

    done = launch(*options, folder / "train.py")

    assert done.returncode == 2
    where = f"{folder}/rules.json[0] is 'Steps', expected one of expectedStartCutOffInSeconds"
    assert f"--log-rules: {where}" in done.stderr
    assert not (folder / "logs").exists()


def test_lines_of_an_earlier_job_in_the_same_directory_do_not_count(folder: Path):
    old = folder / "logs/none/attempt_0/0/stdout.log"
    old.parent.mkdir(parents=True)
    old.write_text("weights are broken\n", encoding="utf-8")
    (folder / "train.py").write_text("import time; time.sleep(2)", encoding="utf-8")
    options = ("--log-dir", folder / "logs", "--log-rules", folder / "rules.json")

    done = launch(*options, folder / "train.py")

    assert done.returncode == 0, done.stderr
    assert "RankFailed" not in done.stderr


def test_a_rule_counts_while_the_ranks_are_inspected_for_a_suspicion(folder: Path):
    """The suspicion alone would only be reported."""
    steps = """
import os, time
restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
for step in range(30):
    with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
        file.write(f"{step}\\n")
    time.sleep(0.05)
if restarts == "0":
    time.sleep(2.2)
    print("weights are broken", flush=True)
    time.sleep(600)
"""
    (folder / "train.py").write_text(steps, encoding="utf-8")
    options = ("--nproc-per-node", 2, "--stall-floor", "2s", "--log-dir", folder / "logs")

    done = launch(*options, "--log-rules", folder / "rules.json", folder / "train.py")

    assert done.returncode == 0, done.stderr
    assert "LogStateHanging_Weights" in done.stderr
