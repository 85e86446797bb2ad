"""Tools that do not end."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host.deep_checks.contract import CheckCommand, CommandResult, Target
from holdfast.adapters.host.deep_checks.run import make_part
from holdfast.adapters.host.machine import Machine
from holdfast.apps.clock import SystemClock
from holdfast.detectors.instance_types import UNKNOWN_EQUIPMENT
from holdfast.detectors.judgement import whole
from holdfast.detectors.thresholds import Thresholds
from holdfast.model.deep_checks import Outcome
from holdfast.model.node_checks import Level

HANGS = (sys.executable, "-c", "import time; open('left', 'w').close(); time.sleep(60)")
FAILS_TO_START = ("/nowhere/tool",)


def part(folder: Path, argv: tuple[str, ...], *, if_hung: str, directory: Path | None = None):
    target = Target(
        machine=Machine(),
        equipment=UNKNOWN_EQUIPMENT,
        thresholds=Thresholds(),
        level=Level.QUICK,
        stress_time=timedelta(seconds=1),
        disk=folder,
        fabric_provider="efa",
    )
    plan = CheckCommand(
        argv=argv,
        takes=timedelta(seconds=1),
        timeout=timedelta(milliseconds=500),
        judge=lambda result, now: CommandResult(judgement=whole([])),
        directory=directory or folder,
        if_hung=if_hung,
    )
    return make_part("one", plan, target, SystemClock())


def test_a_tool_that_hangs_says_nothing_and_leaves_nothing(tmp_path) -> None:
    result = part(tmp_path, HANGS, if_hung="")

    assert result.outcome is Outcome.UNKNOWN
    assert "did not end within 0.5 s" in result.detail
    assert list(tmp_path.iterdir()) == []


def test_a_disk_on_which_a_write_hangs_has_failed(tmp_path) -> None:
    result = part(tmp_path, HANGS, if_hung="the disk stalls")

    assert (result.outcome, result.detail) == (Outcome.FAILED, "the disk stalls")
    assert result.command == HANGS


def test_a_tool_that_does_not_start_has_not_hung(tmp_path) -> None:
    result = part(tmp_path, FAILS_TO_START, if_hung="the disk stalls")

    assert result.outcome is Outcome.UNKNOWN
    assert "cannot start" in result.detail


@pytest.mark.parametrize("argv", [HANGS, FAILS_TO_START])
def test_a_folder_that_cannot_be_made_says_nothing(tmp_path, argv) -> None:
    nowhere = tmp_path / "nowhere"
    result = part(tmp_path, argv, if_hung="the disk stalls", directory=nowhere)

    assert result.outcome is Outcome.UNKNOWN
    assert result.detail == f"cannot create a directory in {nowhere}: No such file or directory"
