import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.apps.agent_config import AgentConfig
from holdfast.kit.config import load_config

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = FOLDER / "holdfast-agent.service"


def test_the_unit_is_one_that_systemd_understands() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed: apt install systemd")

    done = subprocess.run(
        [analyze, "verify", str(UNIT)], check=False, capture_output=True, encoding="utf-8"
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_keeps_the_agent_running_and_small() -> None:
    unit = configparser.ConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(UNIT, encoding="utf-8")
    service = unit["Service"]

    assert service["Restart"] == "always"
    assert "CAP_SYSLOG" in service["CapabilityBoundingSet"].split()
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["RuntimeDirectoryPreserve"] == "yes"


def test_the_configuration_beside_it_is_one_that_the_agent_takes() -> None:
    config = load_config(FOLDER / "agent.toml", AgentConfig)

    assert config.report_dir == Path("/run/holdfast")
    assert config.log.file == Path("/var/log/holdfast/agent.log")
    assert str(config.telemetry.listen) == "127.0.0.1:20257"
