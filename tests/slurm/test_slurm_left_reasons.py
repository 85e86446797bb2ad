"""Since 24.11 the reason of a node outlives its state: whose word is the one that is left?"""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.slurm.commands.execution import Slurm
from holdfast.adapters.slurm.commands.reasons import Author
from holdfast.adapters.slurm.nodes.watch import NodeWatch
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.apps.clock import SystemClock


@pytest.fixture
def watch(tmp_path: Path, monkeypatch) -> NodeWatch:
    """Reads what the file ``said`` has."""
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/said\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    settings = SlurmSettings(report_dir=tmp_path)
    slurm = Slurm(None, timedelta(seconds=20))
    return NodeWatch(slurm, settings, SystemClock(), lambda: None)


def author(watch: NodeWatch, folder: Path, state: str, reason: str, *, alone: bool = False):
    line = f"NodeName=n1 State={state} Reason={reason} [bob@2026-11-21T04:27:53]\n"
    (folder / "said").write_text(line, encoding="utf-8")
    return (watch.read_one("n1") if alone else watch.read()["n1"]).reason.author


@pytest.mark.parametrize("left", ["cabling", "Action:Replace", "holdfast: checking"])
def test_a_reason_of_an_open_node_says_nothing_of_what_closes_it_later(
    watch: NodeWatch, tmp_path: Path, left: str
) -> None:
    author(watch, tmp_path, "IDLE", left)

    said = f"{left} : Not responding"
    assert author(watch, tmp_path, "DOWN+NOT_RESPONDING", said) is Author.SLURM
    assert author(watch, tmp_path, "DOWN+NOT_RESPONDING", said, alone=True) is Author.SLURM
    assert author(watch, tmp_path, "DOWN", said) is Author.SLURM


def test_a_reason_that_is_set_anew_is_somebodys_word_again(
    watch: NodeWatch, tmp_path: Path
) -> None:
    author(watch, tmp_path, "IDLE", "cabling")

    assert author(watch, tmp_path, "IDLE+DRAIN", "cabling") is Author.OTHER
    said = "cabling : Not responding"
    assert author(watch, tmp_path, "DOWN+DRAIN+NOT_RESPONDING", said) is Author.OTHER


def test_a_reason_that_was_never_seen_on_an_open_node_is_somebodys_word(
    watch: NodeWatch, tmp_path: Path
) -> None:
    said = "cabling : Not responding"

    assert author(watch, tmp_path, "DOWN+NOT_RESPONDING", said) is Author.OTHER
