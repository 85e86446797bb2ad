"""Steps that cannot be reported: a full or removed file system must not end the job."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import training
from holdfast.adapters.host.progress_file import Progress, ReportReader, read_progress


@pytest.mark.parametrize("name", ["/dev/full", "removed/progress"])
def test_a_file_that_cannot_be_written_is_a_warning_and_ends_no_job(
    monkeypatch, caplog, tmp_path: Path, name: str
) -> None:
    path = os.path.join(tmp_path, name)
    monkeypatch.setenv("HOLDFAST_PROGRESS_FILE", path)
    monkeypatch.setenv("RANK", "0")
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            training.step(number, loss=1.0)

    (record,) = caplog.records
    assert record.getMessage().startswith(f"steps not reported: {path}: No ")


def test_steps_are_reported_again_when_the_file_can_be_written(monkeypatch, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    monkeypatch.setenv("HOLDFAST_PROGRESS_FILE", str(folder / "progress"))
    monkeypatch.setenv("RANK", "0")
    training.step(1)
    folder.mkdir()
    training.step(2)

    assert (folder / "progress").read_text() == "2\n"


CUT = """
import os, resource, sys
from holdfast import training

for limit, number in ((7, 12), (7, 12345), (7, 12346), (7, 12347), (8, 12348), (-1, 12349)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
    training.step(number)
"""


def test_a_step_that_was_cut_off_is_no_other_step(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    environment = {**os.environ, "HOLDFAST_PROGRESS_FILE": str(path), "RANK": "0"}
    subprocess.run([sys.executable, "-c", CUT], env=environment, check=True)

    assert path.read_text() == "12\n1234??\n12349\n"
    assert read_progress(path) == Progress(first=12, last=12349)
    assert [one.step for one in ReportReader(path).read()] == [12, 12349]
