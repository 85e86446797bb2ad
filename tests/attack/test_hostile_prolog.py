"""No environment of a job makes Prolog, Epilog or PrologSlurmctld drain a healthy node."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from effort import examples
from hostile import TOKENS
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from holdfast.apps.main import run

sys.path.insert(0, str(Path(__file__).parents[1] / "apps"))
from checked_node import CheckedNode

FUZZ = settings(
    max_examples=examples(60),
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
TEXT = (
    st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), max_size=40)
    | st.binary(max_size=20).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))
    | st.sampled_from([os.fsdecode(os.fsencode(one)) for one in TOKENS if one.isascii()])
).map(lambda text: text.replace("\0", ""))
HOSTILE = TEXT | st.sampled_from(
    ["0,1", "-r 4", "--json", "$(touch pwned)", "node[1-99999999]", "../../n1", "a" * 100_000]
)
NAMES = [
    "SLURM_JOB_GPUS", "SLURM_JOB_NODELIST", "SLURM_JOB_ID", "SLURM_JOB_USER", "SLURM_JOB_COMMENT",
    "SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_CONF", "SPANK_AUTO_RESUME", "SLURM_NODELIST",
    "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "NODE_NAME", "AWS_REGION", "TMPDIR", "LANG",
]  # fmt: skip
environments = st.dictionaries(st.sampled_from(NAMES), HOSTILE, max_size=6)


@pytest.fixture
def node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CheckedNode:
    node = CheckedNode(tmp_path, capsys.readouterr)
    node.records("dcgmi", "dcgm/diag4-pass.json")
    return node


def check(node: CheckedNode, what: str, given_ones: dict[str, str], *options: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given_ones.items():
            patch.setenv(name, value)
        patch.chdir(node.folder)
        code = run(["check", what, "--config", str(node.write_config()), *options])
    assert "Traceback" not in node.capture().err
    assert not list(node.folder.rglob("pwned"))
    return code


@pytest.mark.parametrize("what", ["prolog", "epilog"])
@FUZZ
@given(environments)
def test_a_healthy_node_passes_in_every_environment(
    node: CheckedNode, what: str, environment: dict[str, str]
) -> None:
    given_ones = {**environment, "SLURMD_NODENAME": "n1"}

    assert check(node, what, given_ones, "--lock", str(node.folder / "lock")) == 0


@FUZZ
@given(HOSTILE.filter(bool), environments)
def test_no_list_of_nodes_keeps_a_job_from_its_start(
    node: CheckedNode, names: str, environment: dict[str, str]
) -> None:
    given_ones = {**environment, "SLURMD_NODENAME": "", "SLURM_JOB_NODELIST": names}

    assert check(node, "prolog", given_ones, "--state-dir", str(node.folder / "state")) == 0


def test_a_process_passes_with_bytes_that_are_no_text(node: CheckedNode) -> None:
    config, lock = str(node.write_config()), str(node.folder / "lock")
    argv = ["-m", "holdfast", "check", "prolog", "--config", config, "--lock", lock]
    hostile = {name: b"\xff\xfe$(touch pwned)\n\x1b[2J" * 100 for name in NAMES if name != "TMPDIR"}
    environment = {b"SLURMD_NODENAME": b"n1", **{os.fsencode(k): v for k, v in hostile.items()}}

    done = subprocess.run(
        [sys.executable, *argv],
        env={**os.environb, **environment},
        cwd=node.folder,
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert not list(node.folder.rglob("pwned"))
