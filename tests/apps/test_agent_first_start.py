"""Which lines of the kernel count when an agent is installed on a machine that runs."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.apps.agent.config import AgentConfig
from holdfast.apps.agent.detectors import chosen_detectors
from holdfast.apps.agent.session import trusted_lines
from holdfast.detectors.contract import LogLine, Readings
from holdfast.model.errors import ConfigError

XID = "NVRM: Xid (PCI:0000:b9:00): 79, pid=1, name=a, GPU has fallen off the bus."
HOUR = timedelta(hours=1)


def config(tmp_path: Path, *, up: timedelta) -> AgentConfig:
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("boot-1\n", encoding="utf-8")
    booted = (datetime.now(UTC) - up).timestamp()
    os.utime(boot_id, (booted, booted))
    return AgentConfig(boot_id_file=boot_id, report_dir=tmp_path / "run", root=tmp_path)


def first_start(tmp_path: Path) -> str:
    return (tmp_path / "run/state/first-start").read_text(encoding="utf-8")


def test_the_first_start_is_kept_for_the_boot(tmp_path: Path) -> None:
    old = config(tmp_path, up=HOUR)
    since = trusted_lines(old, "boot-1", is_resumed=False)
    kept = first_start(tmp_path)

    assert since is not None
    assert since < datetime.now(UTC)
    for is_resumed in (True, False):
        assert trusted_lines(old, "boot-1", is_resumed=is_resumed) == since
    assert first_start(tmp_path) == kept

    assert trusted_lines(config(tmp_path, up=timedelta(0)), "boot-2", is_resumed=False) is None
    assert first_start(tmp_path).startswith("boot-2 ")


def test_an_agent_that_continues_an_older_release_trusts_all_lines(tmp_path: Path) -> None:
    assert trusted_lines(config(tmp_path, up=HOUR), "boot-1", is_resumed=True) is None


@pytest.mark.parametrize("content", ["", "boot-1", "boot-1 yesterday", "\0 \0"])
def test_a_damaged_file_is_written_anew(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run/state/first-start"
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")

    assert trusted_lines(config(tmp_path, up=HOUR), "boot-1", is_resumed=False) is not None
    assert first_start(tmp_path).startswith("boot-1 2")


def test_a_first_start_that_cannot_be_kept_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(ConfigError, match=r"cannot write .*first-start"):
        trusted_lines(config(tmp_path, up=HOUR), "boot-1", is_resumed=False)


@pytest.mark.parametrize("uptime", ["4000.5 1.0\n", "", "x", None])
def test_the_boot_of_the_machine_is_read_below_root(tmp_path: Path, uptime: str | None) -> None:
    (tmp_path / "proc").mkdir()
    if uptime is not None:
        (tmp_path / "proc/uptime").write_text(uptime, encoding="utf-8")
    settings = AgentConfig(report_dir=tmp_path / "run", root=tmp_path)

    since = trusted_lines(settings, "boot-1", is_resumed=False)

    assert (since is not None) is bool(uptime and uptime != "x")


@pytest.mark.parametrize("is_old", [False, True])
def test_an_old_line_asks_for_no_repair(tmp_path: Path, *, is_old: bool) -> None:
    settings = config(tmp_path, up=HOUR)
    since = trusted_lines(settings, "boot-1", is_resumed=False)
    at = datetime.now(UTC) - (timedelta(minutes=33) if is_old else timedelta(0))
    readings = Readings(kernel_log=(LogLine(message=XID, observed_at=at),))

    found = [
        finding
        for one in chosen_detectors(settings, lines_since=since)
        if "kernel_log" in one.reads
        for finding in one.detect(readings)
    ]

    assert [bool(one.corroborated_within) for one in found] == [is_old]
