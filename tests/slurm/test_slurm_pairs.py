"""Tests of pairs of nodes as steps of a real Slurm."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engines.slurm_cluster import SlurmCluster

CHECK = [sys.executable, "-m", "holdfast", "check"]


@pytest.fixture
def slurm(programs) -> Iterator[SlurmCluster]:
    with SlurmCluster(programs, nodes=("node1", "node2")) as cluster:
        yield cluster


def pairs(slurm: SlurmCluster, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, document (empty if none was printed) and standard error."""
    done = subprocess.run(
        [*CHECK, "pairs", "--nodes", "node1,node2", "--on", "slurm", "--rounds", "1", *options,
         "-o", "json"],
        capture_output=True,
        encoding="utf-8",
        env=slurm.environment,
        timeout=120,
        check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_both_ends_run_as_one_step_and_find_each_other(slurm: SlurmCluster) -> None:
    code, result, said = pairs(slurm, "--test", "tcp")

    assert code == 0, said
    [answer] = result["answers"]
    assert answer["answer"]["passed"] is True, said
    [part] = answer["answer"]["parts"]
    assert part["measured"]["pair_tcp_mb_per_s"] > 10


def test_nodes_that_slurm_does_not_give_are_blamed_for_nothing(slurm: SlurmCluster) -> None:
    job = slurm.submit("-N1", "-w", "node2", "--exclusive", script="sleep 600")
    slurm.until(lambda: slurm.jobs()[job] == "RUNNING")

    code, result, said = pairs(slurm, "--test", "tcp", "--launch-option=--immediate=1")
    assert (code, result) == (1, {})
    assert "no pair could be tested: node1 and node2: srun: error: Unable to allocate" in said

    code, result, said = pairs(slurm, "--test", "nccl", "--launch-option=--immediate=1")
    assert (code, result) == (1, {})
    assert "no pair could be tested" in said


def test_a_node_that_slurm_does_not_know_is_reported(slurm: SlurmCluster) -> None:
    code, result, said = pairs(slurm, "--nodes", "node7,node8", "--test", "tcp")

    assert (code, result) == (1, {})
    assert "node node7 not found in Slurm" in said
