"""Hung jobs on ``holdfast run``: the verdict names the rank, and its evidence can be saved."""

import importlib.util
import json
import os
import re
import signal
import sys
import tarfile
from datetime import timedelta
from pathlib import Path

import pytest
from effort import variants

from holdfast.adapters.local.cluster_store import JobLaunch
from holdfast.decisions.log_rules import Comparison, JobLogRule
from holdfast.kit.serial import from_plain, to_plain

SCRIPT = Path(__file__).parent / "frameworks" / "torch_hang.py"
DEADLINE_S = 300
"""For a machine that is busy with other tests."""

needs_py_spy = pytest.mark.skipif(
    not Path(sys.executable).with_name("py-spy").exists() or os.geteuid() != 0,
    reason="py-spy is not installed, or may not read other processes",
)

HANGS = """
import os, threading, time
def waits_for_nobody():
    time.sleep(600)
def waits_beside():
    time.sleep(600)
with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
    file.write("1\\n2\\n")
print("login with hf_abcdefghijklmnop", flush=True)
threading.Thread(target=waits_beside, daemon=True).start()
waits_for_nobody()
"""


def unpacked(bundle: Path) -> dict[str, str]:
    """The files of a bundle, unpacked."""
    with tarfile.open(bundle, "r:gz") as files:
        return {one.name: files.extractfile(one).read().decode() for one in files}


@needs_py_spy
def test_the_evidence_of_a_hang_can_be_saved_without_secrets(run, tmp_path):
    run.environment["MY_API_KEY"] = "hunter2"
    ended = run.run(
        "--nodes", "2", "--hang-timeout", "2s", "--max-app-retries", "0", "--",
        sys.executable, "-c", HANGS,
    )  # fmt: skip

    assert "no new step was reported for 2s" in ended.stdout
    assert "ranks 0, 1 are outside of collectives" in ended.stdout
    assert "waits_for_nobody" in ended.stdout

    target = tmp_path / "evidence.tar.gz"
    saved = run.holdfast("jobs", "evidence", run.name, "--file", str(target))
    assert saved.returncode == 0, saved.stderr
    content = unpacked(target)
    names = [*content]
    assert names == ["report.md", "evidence.json", "logs/rank-0.log", "logs/rank-1.log"]
    assert "### 2 ranks: 0, 1" in content["report.md"]
    assert "waits_for_nobody" in content["report.md"]
    assert "## Other threads and processes" in content["report.md"]
    assert "thread " in content["report.md"]
    assert "waits_beside (" in content["report.md"]
    assert '"MY_API_KEY": "********"' in content["evidence.json"]
    assert not any("hunter2" in text or "hf_abcdef" in text for text in content.values())

    again = run.holdfast("jobs", "evidence", run.name, "--file", str(target))
    assert again.returncode != 0
    assert "already exists; choose another file with --file" in again.stderr
    assert "### 2 ranks" in run.holdfast("jobs", "evidence", run.name, "--file", "-").stdout


STALLS = """
import os, time
def loads():
    time.sleep(8)
def pauses():
    time.sleep(8)
loads()
for step in range(60):
    with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
        file.write(f"{step}\\n")
    time.sleep(0.3)
pauses()
"""


@needs_py_spy
def test_silence_before_steps_and_a_pause_after_them_are_reported_and_the_job_goes_on(
    run, tmp_path
):
    """Once steps are known, they alone count."""
    config = tmp_path / "run.toml"
    limits = 'stall_factor = 3\nstall_floor = "2s"\nstall_silence = "1s"\n'
    config.write_text(f"[jobs]\n{limits}", encoding="utf-8")

    ended = run.run("--config", str(config), "--", sys.executable, "-c", STALLS)

    assert ended.returncode == 0, ended.stdout
    assert len(re.findall("JobHangSuspected", ended.stdout)) == 2
    assert re.search(
        r"JobHangSuspected: job: the job seems to hang: no output, no CPU time and no network "
        r"traffic of the ranks for "
        r"1s; rank 0 is outside of collectives; rank 0 is in loads .+; without steps that show a "
        r"hang, a job is not restarted",
        ended.stdout,
    ), ended.stdout
    assert re.search(
        r"JobHangSuspected: job: the job seems to hang: no new step for \S+, last step 59; the "
        r"longest pause between two steps was \S+; rank 0 is outside of collectives; rank 0 is in "
        r"pauses .+; it is restarted only after --hang-timeout",
        ended.stdout,
    ), ended.stdout
    assert run.record().attempt == 1


def test_a_job_that_did_not_hang_has_no_evidence(run):
    run.run("--", sys.executable, "-c", "pass")

    asked = run.holdfast("jobs", "evidence", run.name)

    assert asked.returncode != 0
    assert "no evidence, because no attempt hung" in asked.stderr


@pytest.mark.frameworks
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@needs_py_spy
@pytest.mark.parametrize(
    ("hang", "verdict"),
    variants(
        [
            (
                "asleep",
                r"rank 1 on \S+ never entered .+: it is in falls_asleep \(torch_hang.py:\d+\)",
            ),
            (
                "dataloader",
                r"rank 1 on \S+ never entered .+: it is in the DataLoader, in [\w.]+ \(.+"
                r"its worker process \d+ is in [\w.]*__getitem__ \(torch_hang.py:\d+\)",
            ),
            (
                "mismatch",
                r"rank 0 is in all_reduce, .+, and rank 1 is in barrier, .+ different code",
            ),
        ],
        each=3,
    ),
)
def test_the_rank_that_hangs_a_job_of_pytorch_is_named(run, hang, verdict):
    ended = run.run(
        "--nodes", "2", "--hang-timeout", "5s", "--max-app-retries", "0", "--",
        sys.executable, str(SCRIPT), hang, timeout=DEADLINE_S,
    )  # fmt: skip

    assert re.search(verdict, ended.stdout), ended.stdout


@pytest.mark.frameworks
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@needs_py_spy
def test_a_timeout_of_a_collective_is_the_failure_of_the_rank_that_never_came(run):
    run.environment |= {"HANG_AT": "3", "HANG_TIMEOUT_S": "5", "HANG_RANK": "2"}
    ended = run.run(
        "--nodes", "3", "--max-app-retries", "0", "--",
        sys.executable, str(SCRIPT), "asleep", timeout=DEADLINE_S,
    )  # fmt: skip

    assert re.search(
        r"JobHung on \S+: rank 2 on \S+ never entered the collective that timed out: it is in "
        r"falls_asleep \(torch_hang.py:\d+\); the other 2 ranks wait; node rank [01] exited",
        ended.stdout,
    ), ended.stdout
    failure = run.record().attempts[-1].failure
    assert failure.node == run.record().attempts[-1].placement[2]
    assert "never entered" in run.holdfast("jobs", "evidence", run.name, "--file", "-").stdout


@pytest.mark.frameworks
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_rank_of_pytorch_that_is_stopped_is_named(run):
    run.start(
        "--nodes", "2", "--hang-timeout", "5s", "--max-app-retries", "0", "--",
        sys.executable, str(SCRIPT), "none",
    )  # fmt: skip
    log = run.dir.log(1, 1)

    def pid() -> int | None:
        text = log.read_text() if log.exists() else ""
        found = re.search(r"pid (\d+) step [2-9]", text)
        return int(found[1]) if found else None

    os.kill(run.wait_until("the third step", pid), signal.SIGSTOP)
    _, output = run.finish()

    assert re.search(r"rank 1 on \S+ is stopped by a signal such as SIGSTOP", output), output


RULES = r"""
- name: Ticks
  logPattern: "tick (\\d+)"
  expectedStartCutOffInSeconds: 60
  expectedRecurringFrequencyInSeconds: 1.5
- name: Weights
  logPattern: ".*weights are broken"
  faultOnMatch: true
"""

TICKS = """
import os, time
attempt = int(os.environ["HOLDFAST_ATTEMPT"])
for number in range(5):
    print("tick", number, flush=True)
    time.sleep(0.1)
if attempt == 1:
    time.sleep(600)
with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
    file.write("5\\n" if attempt == 2 else "")  # its steps are known otherwise, too
if attempt == 2 and os.environ["RANK"] == "1":
    print("weights are broken", flush=True)
    time.sleep(600)
print("begun for", os.environ["HOLDFAST_RESTART_REASON"])
"""


def test_log_rules_restart_a_job_whose_steps_are_unknown(run, tmp_path):
    (tmp_path / "linked.yaml").write_text(RULES, encoding="utf-8")
    (tmp_path / "rules.yaml").symlink_to("linked.yaml")  # as in a mounted ConfigMap

    ended = run.run(
        "--nodes", "2", "--log-rules", str(tmp_path / "rules.yaml"), "--",
        sys.executable, "-c", TICKS,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stdout
    silence = "attempt 1 stopped: LogStateHanging_Ticks: no line matched 'tick (\\\\d+)' for 1.5s, "
    assert silence in ended.stdout
    (node,) = re.findall(
        r"attempt 2 stopped: LogStateHanging_Weights: node rank 1 on (\S+) printed: weights are "
        "broken",
        ended.stdout,
    )
    assert node in run.record().placement
    assert "begun for LogStateHanging_Weights" in ended.stdout


STOPS = """
import os, time
with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
    file.write("1\\n")
print("tick 1", flush=True)
if os.environ["HOLDFAST_ATTEMPT"] == "1":
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("timeout", "frequency", "reason"),
    [("1s", 2, "JobHung"), ("2s", 1, "LogStateHanging_Ticks")],
)
def test_the_first_of_a_hang_timeout_and_a_log_rule_counts(
    run, tmp_path, timeout, frequency, reason
):
    rules = tmp_path / "rules.json"
    one = {"name": "Ticks", "logPattern": "tick", "expectedRecurringFrequencyInSeconds": frequency}
    rules.write_text(json.dumps([one]), encoding="utf-8")

    ended = run.run(
        "--hang-timeout", timeout, "--log-rules", str(rules), "--", sys.executable, "-c", STOPS
    )

    assert ended.returncode == 0, ended.stdout
    assert re.findall(r"attempt 1 stopped: (\w+):", ended.stdout) == [reason]


def test_a_job_that_a_cluster_keeps_has_its_log_rules():
    rules = (
        JobLogRule(name="a", pattern="x", start_cutoff=timedelta(seconds=90)),
        JobLogRule(name="b", pattern="(.)", threshold=1.5, comparison=Comparison.LTEQ),
    )
    launch = JobLaunch(
        argv=("true",), nproc_per_node=1, checkpoint_dir="c", directory="d", environment={},
        log_rules=rules,
    )  # fmt: skip

    kept = to_plain(launch)
    assert from_plain(JobLaunch, json.loads(json.dumps(kept))) == launch
    del kept["log_rules"]  # as the previous version wrote it
    assert from_plain(JobLaunch, kept).log_rules == ()
