"""Sections of a training script: what ranks write, and what it shows of a window."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.adapters.host.section_times import read_sections, section_samples
from holdfast.decisions.stragglers import straggler, window_of

ROOT = Path(__file__).parents[3]
SCRIPT = """
import time
import holdfast.training as training
def nothing():
    with training.section("outer"), training.section("inner"):
        time.sleep(0.3)
for _ in range(4):
    nothing()
try:
    with training.section("fails"):
        raise KeyError
except KeyError:
    pass
training.replayed(3, 1.5, memoryview(b"abc"))
print(training.replay_steps())
"""


def ran(**variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(ROOT), "RANK": "2", **variables},
        capture_output=True, check=True, encoding="utf-8", timeout=120,
    )  # fmt: skip
    assert done.stderr.count("not written") <= 8
    return done.stdout


def test_the_time_in_sections_is_written_once_for_those_in_one_another(tmp_path: Path) -> None:
    assert ran(HOLDFAST_SECTIONS_DIR=str(tmp_path)) == "0\n"

    seconds = read_sections(tmp_path, [2])[2]
    assert seconds >= 0.3  # the last write may be before the last section
    assert read_sections(tmp_path, [1, 2]) == {}


def test_without_holdfast_and_without_a_directory_nothing_happens(tmp_path: Path) -> None:
    assert ran() == "0\n"
    assert ran(HOLDFAST_SECTIONS_DIR=str(tmp_path / "none")) == "0\n"


def test_the_results_of_a_replay_are_printed_with_the_rank() -> None:
    kind, step, count = ran(HOLDFAST_REPLAY="7").split("\n", 2)

    assert kind.startswith("holdfast: replay on ")
    assert step.startswith("holdfast: replay 3 rank-2 ")
    assert count == "7\n"
    assert step == ran(HOLDFAST_REPLAY="7").splitlines()[1]


@pytest.mark.parametrize("factor", [1.3, 2.0])
def test_the_rank_that_is_longer_in_its_sections_is_named_by_the_factor(factor: float) -> None:
    nodes = dict.fromkeys(range(8), "n")
    times = {rank: 4.0 * (factor if rank == 5 else 1) for rank in nodes}
    windows = [
        window_of(section_samples(dict.fromkeys(nodes, 1.0), after, nodes, 40.0))
        for after in [{rank: 1.0 + one for rank, one in times.items()}] * 4
    ]

    found = straggler([one for one in windows if one is not None], 1.15)

    assert found is not None
    assert found.rank == 5
    assert abs(found.factor - factor) < 0.02


def test_a_rank_that_has_finished_no_section_in_a_window_leaves_it_out() -> None:
    nodes = {0: "n", 1: "n"}

    assert section_samples({0: 1.0, 1: 1.0}, {0: 2.0, 1: 1.0}, nodes, 10.0) == ()
    assert section_samples({0: 1.0}, {0: 2.0, 1: 2.0}, nodes, 10.0) == ()
    assert section_samples({0: 1.0, 1: 1.0}, {0: 90.0, 1: 2.0}, nodes, 10.0) != ()
