"""``holdfast demo --in-job``: a real run of real launchers, real faults."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_ranks_restart_inside_the_job_and_train_the_same_weights(local_platform: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "holdfast",
            "demo",
            "--in-job",
            "--steps",
            "200",
            "--output",
            "json",
        ],
        env={**os.environ, "HOLDFAST_HOME": str(local_platform)},
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=500,
    )

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ok"]
    assert result["final_sha256"] == result["reference_sha256"] != ""
    found = [(one["fault"], one["action"]) for one in result["recoveries"]]
    assert found == [
        ("rank killed", "restarted in place"),
        ("rank hung", "restarted in place"),
        ("node powered off", "node exchanged"),
    ]
    first, second, lost = result["recoveries"]
    assert first["node"] == first["new_node"] == second["new_node"] == lost["node"]
    assert lost["new_node"] != lost["node"]
    assert "exchanging" in done.stderr
