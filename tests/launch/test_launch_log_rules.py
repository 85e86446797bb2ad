"""Log rules under ``holdfast launch``: ranks restart by what their logs show."""

import json
import re
from pathlib import Path

import pytest
from launch.job_of_nodes import Job, ends, running_job
from launch.launched import LIMIT_S, launch

pytestmark = pytest.mark.launchers

RULES = [
    {"name": "Ticks", "logPattern": "tick", "expectedRecurringFrequencyInSeconds": 1.5},
    {"name": "Weights", "logPattern": ".*weights are broken", "faultOnMatch": True},
    {"name": "Endless", "logPattern": ".*(a+)+$", "faultOnMatch": True},
]

FAILED = r"RankFailed: round (\d): (all ranks|rank \d)(?: on \S+)?: ([^;,]*)"

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
    failures = re.findall(FAILED, done.stderr)
    assert failures == [
        ("1", "all ranks", "LogStateHanging_Ticks: no line matched 'tick' for 1.5s"),
        ("2", "rank 1", "LogStateHanging_Weights: rank 1 printed: weights are broken"),
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
    ],
)
def test_rules_that_cannot_be_evaluated_are_refused(
    folder: Path, options: tuple[str, ...], message: str
):
    done = launch(*options, "--log-rules", folder / "rules.json", folder / "train.py")

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


def run_on_two_nodes(job: Job, folder: Path, *options: str) -> tuple[list[int], list[str]]:
    """Exit codes and messages of both launchers, which share a log directory and the rules."""
    shared = ("--log-dir", str(folder / "logs"), "--log-rules", str(folder / "rules.json"))
    guards = [job.start("--node-rank", str(rank), *shared, *options) for rank in range(2)]
    errors = [guard.communicate(timeout=LIMIT_S)[1] for guard in guards]
    return [guard.returncode for guard in guards], errors


NODES = """
import os, sys, time
number, rank = os.environ["HOLDFAST_LAUNCH_ROUND"], os.environ["RANK"]
for tick in range(8):
    if rank == "0":
        print("tick", tick, flush=True)
    time.sleep(1)
if number == "2" and rank == "3":
    print("weights are broken", flush=True)
if number != "3":
    time.sleep(600)
if rank == "0":
    print("over", flush=True)
time.sleep(0 if rank == "0" else 9)
"""


def test_rules_apply_to_jobs_on_several_nodes_with_a_shared_log_directory(folder: Path):
    """Ranks of one node print nothing, which is no hang."""
    rules = [
        {**RULES[0], "expectedRecurringFrequencyInSeconds": 6, "stopPattern": "over"},
        RULES[1],
    ]
    (folder / "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    with running_job(folder, "2") as job:
        job.script.write_text(NODES, encoding="utf-8")
        codes, errors = run_on_two_nodes(job, folder)

    assert codes == [0, 0], errors
    failures = re.findall(FAILED, errors[0])
    assert failures == [
        ("1", "all ranks", "LogStateHanging_Ticks: no line matched 'tick' for 6s"),
        ("2", "rank 3", "LogStateHanging_Weights: rank 3 printed: weights are broken"),
    ]
    assert "RankFailed" not in errors[1]
    assert "JobUnwatched" not in "".join(errors)
    logs = [path.read_text() for path in sorted(folder.glob("logs/none/*/attempt_1/*/stdout.log"))]
    assert sorted(text.count("tick") for text in logs) == [0, 0, 0, 8]
    assert sorted(text.count("weights") for text in logs) == [0, 0, 0, 1]


def test_launchers_with_other_rules_are_reported(folder: Path):
    (folder / "others.json").write_text(json.dumps(RULES[:2]), encoding="utf-8")
    with running_job(folder, "2") as job:
        guards = [
            job.start(
                *("--node-rank", str(rank), "--log-dir", str(folder / "logs")),
                *("--log-rules", str(folder / name)),
            )
            for rank, name in enumerate(["rules.json", "others.json"])
        ]
        job.await_round(1)
        stderr = guards[0].stderr
        assert stderr is not None
        lines = iter(stderr.readline, "")
        found = next(line for line in lines if "differ" in line)
        job.finish()
        assert ends(guards) == [0, 0]

    name = r"\S+-[0-9a-f]{6}"
    expected = (
        rf"holdfast: JobUnwatched: log rules of {name} differ from those of the coordinator: "
    )
    assert re.match(expected, found)


def test_a_log_that_grows_faster_than_it_is_read_is_no_hang(folder: Path):
    text = """
import sys, time
print("tick", flush=True)
sys.stdout.write(("x" * 99 + "\\n") * 160_000)
for number in range(40):
    print("tick", number, flush=True)
    time.sleep(0.1)
"""
    (folder / "train.py").write_text(text, encoding="utf-8")
    options = ("--log-dir", folder / "logs", "--redirects", 3)

    done = launch(*options, "--log-rules", folder / "rules.json", folder / "train.py")

    assert done.returncode == 0, done.stderr
    assert "RankFailed" not in done.stderr


def test_slow_patterns_do_not_delay_the_renewal_of_leases(folder: Path):
    """One log takes many times the lease of 1 s to match; the lines of another one count in time.

    The other node ends seconds after that line: without it, its silence would be a hang.
    """
    rules = [
        {"name": f"Slow{n}", "logPattern": f".*[\\s,]+(\\S+)\\s+(?:ms{n}|sec)\\b",
         "metricThreshold": 5, "operator": "gt", "expectedStartCutOffInSeconds": 600}
        for n in range(12)
    ]  # fmt: skip
    rules += [{**RULES[0], "expectedRecurringFrequencyInSeconds": 4, "stopPattern": "over"}]
    (folder / "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    text = """
import os, sys, time
if os.environ["RANK"] == "2":
    for stream in (sys.stdout, sys.stderr):
        stream.write('{"step": 17, "loss": 2.31, "took": "31 xs"}\\n' * 8000)
elif os.environ["RANK"] == "3":
    for _ in range(28):
        print("tick", flush=True)
        time.sleep(0.5)
    print("over", end="", flush=True)
else:
    time.sleep(20)
"""
    with running_job(folder, "2") as job:
        job.script.write_text(text, encoding="utf-8")
        codes, errors = run_on_two_nodes(job, folder, "--redirects", "3")

    assert codes == [0, 0], errors
    assert "RankFailed" not in errors[0]
