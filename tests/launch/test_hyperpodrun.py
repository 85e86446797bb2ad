"""``hyperpodrun``, by which commands of HyperPod's pods start ranks."""

import subprocess
import sys
from pathlib import Path

import pytest
from launched import LIMIT_S, clean_environment

PROGRAM = "import sys; from holdfast.apps.main import hyperpodrun; sys.argv[0] = 'x'; hyperpodrun()"
SCRIPT = """
import os, pathlib, sys, time
marker = pathlib.Path(sys.argv[1])
print("rank", os.environ["RANK"], sys.argv[2:], flush=True)
other = marker.with_name("printed")
if os.environ["RANK"] == "0":
    other.touch()
while not other.exists():
    time.sleep(0.01)
if not marker.exists() and os.environ["RANK"] == "1":
    marker.touch()
    sys.exit(3)
"""


def hyperpodrun(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        env=clean_environment(**variables),
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=LIMIT_S,
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_a_command_of_the_guide_of_aws_runs_and_restarts_its_ranks(
    script: Path, tmp_path: Path
) -> None:
    done = hyperpodrun(
        "--tee=3", f"--log_dir={tmp_path / 'logs'}", "--nproc_per_node=2", "--nnodes=1",
        "--rdzv-backend", "hyperpod", "--server-host=0.0.0.0", "--server_port", "8080",
        "--server-log-level=info", "--server-shutdown-timeout", "300", "--shutdown-signal",
        "SIGKILL", "--shutdown-timeout", "15", script, tmp_path / "failed", "--server-port=1",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rank 0 ['--server-port=1']") == 2
    assert done.stdout.count("rank 1 ['--server-port=1']") == 2
    assert "RanksRestarted" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--inprocess-restart"],
        ["--inprocess_timeout", "60"],
        ["--pre-train-script", "a.sh"],
        ["--post-train-args=b"],
    ],
)
def test_what_is_not_supported_is_refused_with_what_to_do(script: Path, options: list[str]) -> None:
    done = hyperpodrun(*options, script)

    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert line.startswith(f"hyperpodrun: error: {options[0].partition('=')[0]}: not supported; ")
    assert done.stdout == ""


def test_variables_of_the_pod_count_as_for_the_launcher(script: Path, tmp_path: Path) -> None:
    done = hyperpodrun(script, tmp_path / "failed", PET_NPROC_PER_NODE="2", PET_MAX_RESTARTS="0")

    assert done.returncode == 1
    assert "restarts in place exhausted (0 of 0)" in done.stdout + done.stderr
