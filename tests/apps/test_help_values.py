"""Placeholders and defaults in help texts are those of the programs."""

from importlib import import_module

import pytest
from click.testing import CliRunner

from holdfast.adapters.slurm.settings import STATE_DIR
from holdfast.apps.cli.main import cli
from holdfast.apps.launch.main import main as launch
from holdfast.apps.main import LIGHT
from holdfast.kit.units import parse_duration


def test_the_state_directory_in_the_help_is_the_default() -> None:
    shown = " ".join(CliRunner().invoke(cli, ["nodes", "list", "--help"]).output.split())

    assert f"Holdfast controller on Slurm. [default: {STATE_DIR}]" in shown


@pytest.mark.parametrize("name", ["agent", "launch", "slurm supervise"])
def test_durations_have_one_placeholder(name: str) -> None:
    parser = import_module(LIGHT[name]).command_line_parser()
    others = [
        action.option_strings[0]
        for action in parser._actions
        if "TIME" in (action.metavar or "").split("|")
    ]

    assert others == []


def test_durations_in_the_help_of_launch_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        launch(["--help"])

    shown = " ".join(capsys.readouterr().out.split())
    sentence = shown[shown.index("DURATION is a number with a unit, such as ") :]
    examples = sentence.partition(";")[0].partition("such as ")[2].replace(" or", ",").split(", ")
    assert [parse_duration(one).total_seconds() for one in examples] == [0.5, 90, 900, 5400]
