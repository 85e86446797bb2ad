"""srun as the child of its supervisor: what it says, and how it ends."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.apps.slurm.srun import Signals, Srun
from holdfast.model.errors import BackendError

FIRST = "srun: error: node1: task 0: "
OTHERS = "srun: error: node2: task 1: Terminated"


def ended(folder: Path, script: str) -> int:
    program = folder / "srun"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    with Signals() as signals:
        srun = Srun([str(program)], os.environ, signals)
        while (status := srun.status) is None:
            signals.wait(timedelta(seconds=5))
    return status


@pytest.mark.parametrize(
    ("said", "code", "end"),
    [
        ([FIRST + "Exited with exit code 4", OTHERS], 143, 4),
        (["srun: error: n1: tasks 0-2,7: Exited with exit code 7", OTHERS], 137, 7),
        ([FIRST + "Killed", OTHERS], 143, 137),
        ([FIRST + "Segmentation fault (core dumped)", OTHERS], 143, 139),
        ([FIRST + "Out Of Memory", OTHERS], 143, 143),
        ([OTHERS, FIRST + "Exited with exit code 4"], 143, 143),
        (["0: " + FIRST + "Exited with exit code 4"], 143, 143),
        (["srun: error: Unable to create step for job 1"], 1, 1),
        ([FIRST + "Exited with exit code 4"], 4, 4),
        ([FIRST + "Exited with exit code 4"], 0, 0),
        ([], 143, 143),
    ],
)
def test_a_step_ends_as_the_rank_that_failed_first(
    tmp_path: Path, capfd, said: list[str], code: int, end: int
) -> None:
    (tmp_path / "said").write_text("".join(f"{line}\n" for line in said), encoding="utf-8")

    assert ended(tmp_path, f"cat {tmp_path}/said >&2; exit {code}") == end

    assert capfd.readouterr().err.splitlines() == said


def test_the_rank_that_failed_first_counts_however_long_the_others_take(tmp_path: Path) -> None:
    later = f"sleep 0.1; echo '{OTHERS}' >&2; sleep 0.1; echo more >&2"

    code = ended(tmp_path, f"echo '{FIRST}Exited with exit code 4' >&2; {later}; exit 143")

    assert code == 4


def test_what_it_says_is_passed_on_to_the_last_byte(tmp_path: Path, capfd) -> None:
    script = "print('x' * 3_000_000, 'end', end='', file=sys.stderr)"

    assert ended(tmp_path, f'exec {sys.executable} -c "import sys; {script}"') == 0

    said = capfd.readouterr().err
    assert len(said) == 3_000_004
    assert said.endswith(" end")


def test_a_reader_that_has_gone_keeps_no_srun_from_its_end(tmp_path: Path, capfd) -> None:
    source, sink = os.pipe()
    before = os.dup(2)
    os.dup2(sink, 2)
    os.close(sink)
    os.close(source)
    try:
        code = ended(tmp_path, f"{sys.executable} -c \"print('x' * 300_000)\" >&2; exit 5")
    finally:
        os.dup2(before, 2)
        os.close(before)

    assert code == 5
    assert capfd.readouterr().err == ""


def test_one_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with Signals() as signals, pytest.raises(BackendError, match=r"cannot run .*/none"):
        Srun([str(tmp_path / "none")], os.environ, signals)
