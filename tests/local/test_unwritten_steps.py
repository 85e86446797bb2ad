"""Steps that cannot be reported: a full or removed file system must not end the job."""

import logging
import os
from pathlib import Path

import pytest

from holdfast import training


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
