"""``holdfast demo --damage``: the newest checkpoint is damaged, and its node loses power."""

import json

import pytest


def test_the_job_resumes_from_the_checkpoint_before_and_ends_with_the_same_weights(run):
    pytest.importorskip("numpy")
    options = ["--damage", "--steps", "200", "--checkpoint-every", "20", "--output", "json"]

    ended = run.holdfast("demo", *options, timeout=300)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["final_sha256"] == result["reference_sha256"] != ""
    steps = [int(result[key].split("-")[1].split(".")[0]) for key in ("damaged", "resumed_from")]
    assert steps[0] - steps[1] == 20
    assert f"{result['damaged']} is damaged: " in ended.stderr  # by its CRC32 or its manifest
    aside = run.dir.path.parent / "demo/checkpoints.set-aside"
    assert [path.name for path in aside.iterdir()] == [result["damaged"]]
