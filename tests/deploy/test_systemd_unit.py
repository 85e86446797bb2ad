import configparser
import subprocess
from pathlib import Path

from holdfast.apps.agent.config import AgentConfig
from holdfast.kit.config import load_config
from tests.engines.host_tools import require_tool

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = FOLDER / "holdfast-agent.service"


def test_the_unit_is_one_that_systemd_understands() -> None:
    analyze = require_tool("systemd-analyze")
    done = subprocess.run(
        [analyze, "verify", str(UNIT)], check=False, capture_output=True, encoding="utf-8"
    )

    assert (done.returncode, done.stderr) == (0, "")


BLINDING = {
    "DeviceAllow": "GPUs and network adapters",
    "DevicePolicy": "GPUs and network adapters",
    "InaccessiblePaths": "what lies there",
    "NoExecPaths": "the commands of vendors",
    "PrivateDevices": "GPUs and network adapters",
    "PrivateNetwork": "the health of the kubelet",
    "PrivateUsers": "files that root alone may read",
    "ProcSubset": "the memory and the mounts",
    "ProtectClock": "the state of the clock and, by an implied DeviceAllow, all devices",
    "ProtectKernelLogs": "the kernel's log",
    "ProtectProc": "processes of others",
    "RootDirectory": "the machine",
    "RootImage": "the machine",
    "SystemCallFilter": "what a vendor's command may need",
    "TemporaryFileSystem": "what lies below",
    "User": "what root alone may read",
}
"""Options of systemd.exec(5) and what a detector could not see with them."""


def test_the_sandbox_hides_nothing_that_a_detector_reads() -> None:
    service = read_unit()["Service"]

    assert {option for option in BLINDING if option in service} == set()
    assert service["ProtectHome"] == "read-only"
    assert {"AF_UNIX", "AF_INET", "AF_NETLINK"} <= set(service["RestrictAddressFamilies"].split())
    assert {"CAP_SYSLOG", "CAP_DAC_READ_SEARCH"} <= set(service["CapabilityBoundingSet"].split())


def read_unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(UNIT, encoding="utf-8")
    return unit


def test_the_unit_keeps_the_agent_running_and_small() -> None:
    service = read_unit()["Service"]

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
