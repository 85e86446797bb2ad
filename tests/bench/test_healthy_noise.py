"""False alarms in recorded windows of real, healthy jobs."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from bench.healthy_noise import Observed, figures, observed
from holdfast.kit.serial import to_plain
from tests.simulation.straggling_ranks import sampled


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
