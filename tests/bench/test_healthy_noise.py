"""False alarms in recorded windows of real, healthy jobs."""

import json
import lzma
import random
from dataclasses import replace
from pathlib import Path

import pytest

from bench.healthy_noise import Observed, figures, observed
from holdfast.kit.serial import to_plain
from tests.simulation.straggling_ranks import sampled

RECORDINGS = Path(__file__).parents[1] / "recordings/rank-samples"
RECORDED = RECORDINGS / "healthy-8-ranks-busy-machine.jsonl.xz"
"""53 windows of ``healthy_noise`` on two CPUs, while other programs came and went."""


def windows(job: float, slow: float, count: int = 8) -> list[Observed]:
    draw = random.Random(job)
    own = {rank: slow if rank == 2 else 1.0 for rank in range(4)}
    return [
        Observed(job=job, load=3.0, steps=10, hangs=number // 6, ranks=tuple(sampled(draw, own)))
        for number in range(count)
    ]


def test_windows_are_kept(tmp_path: Path) -> None:
    kept = windows(1.0, 1.0)
    file = tmp_path / "windows.jsonl"
    file.write_text("".join(json.dumps(to_plain(one)) + "\n" for one in kept), "utf-8")

    assert observed(file) == kept
    assert observed(tmp_path / "none") == []


@pytest.mark.parametrize(("slow", "alarms"), [(1.0, 0.0), (2.0, 1.0)])
def test_a_named_rank_counts_once_and_windows_of_two_jobs_are_not_mixed(slow, alarms) -> None:
    unread = replace(windows(3.0, slow)[0], ranks=())
    found = figures([*windows(1.0, slow), *windows(2.0, slow, 3), unread])

    assert [one.value for one in found[:3]] == [alarms, 1.0, 11.0]
    assert found[0].name == "false stragglers in 9 min at load averages of 3 to 3"


def test_ranks_of_a_busy_machine_whose_noise_comes_and_goes_are_not_named(tmp_path: Path) -> None:
    """Their own times vary by 4 % in some windows and by 40 % in those that follow."""
    file = tmp_path / "windows.jsonl"
    file.write_bytes(lzma.decompress(RECORDED.read_bytes()))
    found = figures(observed(file))

    assert [one.value for one in found[:3]] == [0.0, 0.0, 52.0]
    assert found[0].name == "false stragglers in 38 min at load averages of 14 to 105"
