"""What docs/howto/run-on-slurm.md tells can be used as it stands; what cannot is told."""

import re
import tomllib
from pathlib import Path

import pytest

from holdfast.apps.agent.config import AgentConfig
from holdfast.apps.agent.session import node_name
from holdfast.apps.controller.config import ControllerConfig, PlatformName
from holdfast.apps.main import run
from holdfast.kit.config import parse_table
from holdfast.model.errors import ConfigError

GUIDE = (Path(__file__).parents[2] / "docs/howto/run-on-slurm.md").read_text(encoding="utf-8")


def test_both_files_of_the_guide_are_configurations() -> None:
    agent, controller, *more = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)

    assert parse_table(tomllib.loads(agent), AgentConfig).slurm is not None
    config = parse_table(tomllib.loads(controller), ControllerConfig)
    assert config.platform is PlatformName.SLURM
    assert config.slurm is not None
    for part in map(tomllib.loads, more):
        slurm = {**tomllib.loads(controller)["slurm"], **part["slurm"]}
        assert parse_table({**tomllib.loads(controller), "slurm": slurm}, ControllerConfig)


def test_a_node_is_called_as_its_host_up_to_the_first_dot(monkeypatch, tmp_path: Path) -> None:
    table = {"slurm": {"report_dir": str(tmp_path)}}
    host = type("Host", (), {"nodename": "n7.cluster.example"})
    monkeypatch.setattr("os.uname", lambda: host)

    assert node_name(parse_table(table, AgentConfig)) == "n7"
    assert node_name(parse_table({**table, "node": "n8.x"}, AgentConfig)) == "n8.x"


def test_a_node_is_of_one_cluster(tmp_path: Path) -> None:
    table = {"slurm": {"report_dir": str(tmp_path)}, "kubernetes": {}}

    with pytest.raises(ConfigError, match="a node belongs to one cluster"):
        parse_table(table, AgentConfig)


@pytest.mark.parametrize(
    ("table", "reported"),
    [
        ("", "slurm: missing, expected a table with report_dir"),
        ('[slurm]\nreport_dir = "{}/none"', "slurm.report_dir: {}/none is not a directory"),
        ('[slurm]\nreport_dir = "{}"\nconf = "{}/none"', "slurm.conf: {}/none is not a file"),
        (
            '[slurm]\nreport_dir = "{}"\nstate_dir = "/proc/x"',
            "slurm.state_dir: cannot write /proc/x/controller.lock",
        ),
        ('[slurm]\nreport_dir = "{}"\npoll = "0s"', "poll must be longer than 0s"),
        (
            '[slurm]\nreport_dir = "{}"\n[slurm.check]\ncommand = []',
            "slurm.check: command: empty, expected a command",
        ),
    ],
)
def test_a_controller_reports_what_it_cannot_use(
    tmp_path: Path, capsys, table: str, reported: str
) -> None:
    config = tmp_path / "controller.toml"
    config.write_text(
        'platform = "slurm"\nlisten = 0\n' + table.replace("{}", str(tmp_path)), encoding="utf-8"
    )

    assert run(["controller", "--config", str(config)]) == 2
    assert reported.replace("{}", str(tmp_path)) in capsys.readouterr().err


def test_commands_need_the_directory_of_a_controller(tmp_path: Path, capsys) -> None:
    assert run(["nodes", "list", "--state-dir", str(tmp_path)]) == 2
    assert "give the state_dir of the controller's table slurm" in capsys.readouterr().err


@pytest.mark.parametrize("other", [("--run", "x"), ("--context", "x")])
def test_a_state_directory_is_of_slurm(tmp_path: Path, capsys, other: tuple[str, str]) -> None:
    assert run(["nodes", "list", "--state-dir", str(tmp_path), *other]) == 2
    assert "--state-dir" in capsys.readouterr().err
