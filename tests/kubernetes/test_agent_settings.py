from pathlib import Path

import pytest

from holdfast.adapters.kubernetes.nodes.agent_settings import AgentKubernetes
from holdfast.apps.agent.config import AgentConfig
from holdfast.apps.agent.main import main
from holdfast.apps.agent.session import node_name
from holdfast.apps.exit_codes import ExitCode
from holdfast.kit.config import parse_table
from holdfast.model.errors import ConfigError

ON_KUBERNETES = AgentConfig(kubernetes=AgentKubernetes())


def test_an_empty_table_is_enough() -> None:
    assert parse_table({"kubernetes": {}}, AgentConfig) == ON_KUBERNETES
    assert AgentConfig().kubernetes is None


@pytest.mark.parametrize("key", ["ca_file", "token_file"])
def test_credentials_without_their_server_are_a_mistake(key: str) -> None:
    with pytest.raises(ConfigError, match=r"kubernetes: .*server"):
        parse_table({"kubernetes": {key: "/x"}}, AgentConfig)


def test_the_name_of_the_node_is_given_and_never_guessed(monkeypatch) -> None:
    monkeypatch.setenv("NODE_NAME", "n1")
    assert node_name(ON_KUBERNETES) == "n1"
    assert node_name(AgentConfig(node="n2", kubernetes=AgentKubernetes())) == "n2"
    assert node_name(AgentConfig()) != "n1"

    monkeypatch.delenv("NODE_NAME")
    with pytest.raises(ConfigError, match=r"spec\.nodeName"):
        node_name(ON_KUBERNETES)


def test_an_agent_outside_of_a_pod_says_what_it_lacks(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "boot_id").write_text("b\n", encoding="utf-8")
    (tmp_path / "kmsg").touch()
    files = ["--kmsg", tmp_path / "kmsg", "--boot-id-file", tmp_path / "boot_id"]
    options = ["--node", "n1", "--kubernetes", "--report-dir", tmp_path / "run", *files]

    assert main(list(map(str, options))) == ExitCode.BAD_INPUT

    assert "KUBERNETES_SERVICE_HOST is not set" in capsys.readouterr().err
