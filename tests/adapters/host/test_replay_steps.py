"""The built-in steps of a replay: equal each time, and not with a wrong product."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.adapters.host.replay_steps import plain_steps
from holdfast.decisions.replay_results import Replay, compared, parse_replay

FLIPPING = Path(__file__).with_name("flipping_steps.py")


def replayed(*program: str) -> Replay:
    done = subprocess.run(
        [sys.executable, *program, "3"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=300,
    )
    return parse_replay(done.stdout)


def test_steps_in_plain_python_repeat_and_each_differs() -> None:
    first, second = list(plain_steps(3)), list(plain_steps(3))

    assert first == second
    assert len(set(first)) == 3


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_a_bit_that_flips_in_a_product_of_pytorch_changes_the_results() -> None:
    built_in = ("-m", "holdfast.adapters.host.replay_steps")
    good, again, bad = replayed(*built_in), replayed(*built_in), replayed(str(FLIPPING))

    assert len(good.digests) == 3
    assert good.kind.startswith("torch ")
    assert compared(good, again).is_equal is True
    assert compared(good, bad).is_equal is False
