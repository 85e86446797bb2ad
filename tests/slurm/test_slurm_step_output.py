"""Why the ranks of a step failed, by the output of the process that supervises it."""

import subprocess
import sys
from pathlib import Path

import pytest

ATTEMPT = """
import sys
from holdfast.adapters.slurm.jobs.step_output import StepCrash
before, text = sys.argv[1:]
print(before, flush=True)
crash = StepCrash({})
crash.begin()
print(text, flush=True)
with open("found", "w") as file:
    file.write(crash.text())
"""
TRACEBACK = """Traceback (most recent call last):
  File "/w/train.py", line 7, in <module>
    load()
KeyError: 'shard'"""


@pytest.mark.parametrize(
    ("before", "text", "found"),
    [
        ("", TRACEBACK, "KeyError: 'shard'"),
        (
            "",
            TRACEBACK.replace("\n", "\nsrun: error: node1: task 0: Exited with exit code 1\n", 1),
            "KeyError: 'shard'",
        ),
        (TRACEBACK, "step 1", ""),
        (TRACEBACK, "srun: error: node1: task 0: Killed", "srun: error: node1: task 0: Killed"),
    ],
)
def test_the_exception_of_the_attempt_is_found_among_lines_of_srun(
    tmp_path: Path, before: str, text: str, found: str
) -> None:
    with (tmp_path / "out").open("wb") as output:
        subprocess.run(
            [sys.executable, "-c", ATTEMPT, before, text], stdout=output, cwd=tmp_path, check=True
        )

    assert (tmp_path / "found").read_text(encoding="utf-8") == found


@pytest.mark.parametrize("piped", ["", "stdout", "stderr"])
def test_log_rules_need_all_output_in_files(tmp_path: Path, piped: str) -> None:
    """Otherwise a healthy step whose lines go through a pipe would look silent."""
    (tmp_path / "rules.json").write_text(
        '[{"name": "r", "logPattern": "x", "faultOnMatch": true}]', encoding="utf-8"
    )
    code = (
        "import pathlib; from holdfast.adapters.slurm.jobs.step_rules import StepRules; "
        "rules = StepRules({'HOLDFAST_LOG_RULES': 'rules.json'}, ['srun', 'x']); "
        "pathlib.Path('problems').write_text(str(rules.problems))"
    )
    with (tmp_path / "out").open("wb") as out:
        streams = {name: subprocess.PIPE if name == piped else out for name in ("stdout", "stderr")}
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, **streams)

    problems = (tmp_path / "problems").read_text(encoding="utf-8")
    assert ("without a pipe such as | tee" in problems) is bool(piped)
    assert piped or problems == "()"
