"""Saves of real frameworks, killed at random moments, or to a disk that gets full."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from effort import examples, is_quick
from installed import skip_without

from tests.engines.framework_environments import ROOT, environment_of

SCRIPTS = Path(__file__).parent / "frameworks"

MODULES = {"safetensors": "safetensors", "lightning": "lightning", "deepspeed": "deepspeed",
           "hf_trainer": "transformers", "accelerate": "accelerate"}  # fmt: skip
"""Kinds of saves of ``killed_kinds.py`` to the package that they need."""

APART = {
    "orbax": "orbax",
    "torchtitan": "torchtitan",
    "torchtitan_async": "torchtitan",
    "megatron_lm_torch_dist": "megatron_lm",
    "megatron_lm_torch_dist_async": "megatron_lm",
    "megatron_lm_torch_dcp": "megatron_lm",
    "megatron_lm_torch": "megatron_lm",
    "composer": "composer",
    "dlrover": "dlrover",
    "ray": "ray",
}
"""Kinds of saves of ``killed_kinds_apart.py`` to their environment."""

ROUNDS_APART = 10
"""Rounds of each in the run of a night: one takes up to 8 s."""

FEW = 2
"""Rounds of each framework if the run is quick: a round starts a training."""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("script", "what", "rounds", "kinds"),
    [
        ("killed_saves.py", "kills", 120, ["dcp", "torch"]),
        ("full_disk_saves.py", "full disks", 100, ["dcp", "torch", "safetensors"]),
    ],
)
def test_what_is_chosen_after_saves_that_failed_is_loaded(
    tmp_path: Path, script: str, what: str, rounds: int, kinds: list[str]
) -> None:
    skip_without("torch", "safetensors")
    rounds = examples(rounds)

    assert output_of(script, tmp_path, rounds, *kinds).count(f"{rounds} {what}") == len(kinds)


@pytest.mark.frameworks
@pytest.mark.parametrize("kind", MODULES)
def test_a_framework_loads_what_is_chosen_after_a_kill(tmp_path: Path, kind: str) -> None:
    skip_without(MODULES[kind])
    rounds = FEW if is_quick() else 100

    assert f"{kind}: {rounds} kills" in output_of("killed_saves.py", tmp_path, rounds, kind)


if not is_quick():  # builds environments

    @pytest.mark.frameworks
    @pytest.mark.parametrize("kind", APART)
    def test_a_framework_of_its_own_environment_loads_what_is_chosen_after_a_kill(
        tmp_path: Path, kind: str
    ) -> None:
        skip_without("torch")  # the environments of frameworks have the same release
        python = str(environment_of(APART[kind]) / "bin/python")

        output = output_of("killed_saves.py", tmp_path, ROUNDS_APART, kind, python=python)
        assert f"{kind}: {ROUNDS_APART} kills" in output

    @pytest.mark.frameworks
    @pytest.mark.parametrize("kind", ["alone", "replicated"])
    def test_nvrx_loads_what_is_chosen_after_a_kill(tmp_path: Path, kind: str) -> None:
        skip_without("torch")  # the environments of frameworks have the same release
        python = str(environment_of("nvrx") / "bin/python")

        output = output_of("killed_nvrx_saves.py", tmp_path, 100, kind, python=python)
        assert f"{kind}: 100 kills" in output


def output_of(
    script: str, folder: Path, rounds: int, *kinds: str, python: str = sys.executable
) -> str:
    command = [python, str(SCRIPTS / script), str(folder), str(rounds), *kinds]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, check=False, capture_output=True, encoding="utf-8", env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
