"""Steps that a script prints, where no process reads a progress file."""

import math

import pytest

from holdfast import training
from holdfast.decisions.logged_steps import LoggedSteps, after_lines
from holdfast.decisions.loss_faults import LossLimits


@pytest.mark.parametrize(("rank", "steps"), [("0", [1, 2, 3]), ("3", [3])])
def test_printed_steps_are_read_as_reported(monkeypatch, capsys, rank: str, steps) -> None:
    monkeypatch.setenv("HOLDFAST_PROGRESS_FILE", "-")
    monkeypatch.setenv("RANK", rank)
    training.step(1)
    training.step(2, loss=2.5)
    training.step(3, loss=math.nan)

    lines = capsys.readouterr().out.splitlines()
    found = after_lines(LoggedSteps(), 0, lines, LossLimits())
    assert len(lines) == len(steps)
    assert (found.first, found.last) == (steps[0], steps[-1])
    assert found.fault is not None
    assert found.fault.step == 3
