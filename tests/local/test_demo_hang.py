"""``holdfast demo --hang``: a rank is stopped, named, and the job ends with the same weights."""

import json
import re

import pytest


def test_the_stopped_rank_is_named_and_the_job_ends_with_the_same_weights(run):
    pytest.importorskip("numpy")
    options = ["--hang", "--steps", "200", "--checkpoint-every", "20", "--output", "json"]

    ended = run.holdfast("demo", *options, timeout=300)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["final_sha256"] == result["reference_sha256"] != ""
    assert re.fullmatch(
        r"rank 1 on \S+ is stopped by a signal such as SIGSTOP, or by a debugger; "
        r"the other rank waits(; kernel on .+)?",  # other tests have processes killed for memory
        result["verdict"],
    )
    assert "JobHung: no new step was reported for 5s, last step" in ended.stderr
    assert "AttemptKilled" not in ended.stderr, "a stopped rank is continued, so that it can end"
    saved = run.holdfast("jobs", "evidence", "demo", "--file", "-")
    assert "### 1 rank" in saved.stdout or "### 2 ranks" in saved.stdout


def test_one_story_at_a_time(run):
    asked = run.holdfast("demo", "--hang", "--damage")

    assert asked.returncode == 2
    assert "--damage and --hang: give only one of them" in asked.stderr
