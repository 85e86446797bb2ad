"""Whole jobs: torchrun takes several seconds to start, so each test asks for much."""

import importlib.util
import os
import signal
import subprocess
import sys

import pytest
from trainer_ranks import ROOT, Attempt, checkpoints, final

STEPS, EVERY = 60, 10
TRAINER = (
    "-m",
    "holdfast.apps.demo.train_torch",
    *("--steps", str(STEPS), "--checkpoint-every", str(EVERY)),
    *("--batch", "96", "--hidden", "48", "--step-time", "0.01"),
)
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", *TRAINER]
PLAIN = [sys.executable, *TRAINER]

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)


def finish(directory, command, *, nodes, attempt=1):
    with Attempt(directory, command, nodes=nodes, attempt=attempt) as ranks:
        assert ranks.exit_codes() == [0] * nodes, ranks.errors()
    return final(directory), ranks.outputs()[0]


def losses(output):
    return [line for line in output.splitlines() if line.startswith("step ")]


@pytest.mark.torch
@needs_torch
def test_two_nodes_under_torchrun_end_with_the_same_bits_after_a_kill_and_damage(tmp_path):
    expected, _ = finish(tmp_path / "undisturbed", PLAIN, nodes=2)
    with Attempt(tmp_path, TORCHRUN) as ranks:
        ranks.wait_for_step(2 * EVERY + 3)
        ranks.signal(signal.SIGKILL, 1)
        assert ranks.exit_codes() == [1, -9]
    newest = checkpoints(tmp_path)[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)

    result, output = finish(tmp_path, TORCHRUN, nodes=2, attempt=2)

    assert "attempt 2: resumed at step" in output
    assert result == expected
    assert newest.with_suffix(".damaged").exists()
    assert result["loss"] < 4.0  # guessing evenly among 96 characters: ln 96 = 4.56 nats


@pytest.mark.torch
@needs_torch
def test_three_ranks_learn_what_one_does_and_end_with_the_same_bits_after_a_kill(tmp_path):
    expected, output = finish(tmp_path / "undisturbed", PLAIN, nodes=3)
    _, output_of_one = finish(tmp_path / "one", PLAIN, nodes=1)
    # Not to the bit: the sums are rounded in another order.
    assert losses(output)[:2] == losses(output_of_one)[:2]

    with Attempt(tmp_path, PLAIN, nodes=3) as ranks:
        ranks.wait_for_step(EVERY + 3)
        ranks.signal(signal.SIGKILL, 2)

        assert ranks.exit_codes() == [1, 1, -9]
        for rank, error in enumerate(ranks.errors()[:2]):
            assert error.splitlines()[-1].startswith(f"rank {rank}: lost the other ranks: ")
            assert "Traceback" not in error

    result, _ = finish(tmp_path, PLAIN, nodes=3, attempt=2)

    assert result == expected


def test_without_pytorch_it_says_what_to_install(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(name='torch')")

    result = subprocess.run(
        PLAIN,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 2
    assert result.stderr == "torch is not installed: pip install 'holdfast[torch]'\n"
