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
    failures = re.findall(r"RankFailed: round (\d): rank \d on \S+: ([^;,]*)", done.stderr)
    assert failures == [
        ("1", "LogStateHanging_Ticks: no line matched 'tick' for 1.5s"),
        ("2", "LogStateHanging_Weights: rank 1 printed: weights are broken"),
    ]
    ignored = "JobUnwatched: log rule Endless is '.*(a+)+$', expected a regular expression that can"
    assert ignored in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "expected --log-dir as well"),
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
