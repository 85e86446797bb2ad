"""The built-in steps of a replay: equal each time, and not with a wrong product."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.adapters.host.replay_kind import replay_kind
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
    assert first[2].startswith("68a3353cab1c5755"), "no healthy node computes anything else"


X86 = "processor\t: 0\nmodel name\t: EPYC 9R14\nflags\t: fpu\n\nprocessor\t: 1\nmodel name\t: B\n"
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\nprocessor\t: 1\n"


@pytest.mark.parametrize(
    ("text", "model"), [(X86, " EPYC 9R14"), (ARM, " 0x41 0xd4f"), ("", ""), (None, "")]
)
def test_nodes_with_another_processor_are_of_another_kind(
    tmp_path: Path, text: str | None, model: str
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    if text is not None:
        cpuinfo.write_text(text)

    kind = replay_kind(str(cpuinfo))

    assert kind.startswith(f"{os.uname().machine}{model}, Python 3.")


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_a_bit_that_flips_in_a_product_of_pytorch_changes_the_results() -> None:
    built_in = ("-m", "holdfast.adapters.host.replay_steps")
    good, again, bad = replayed(*built_in), replayed(*built_in), replayed(str(FLIPPING))

    assert len(good.digests) == 3
    assert ", torch " in good.kind
    assert compared(good, again).is_equal is True
    assert compared(good, bad).is_equal is False
