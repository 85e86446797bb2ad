"""Newer releases of Slurm for the tests: why one cannot be had is told."""

from pathlib import Path

import pytest

from tools.slurm_versions import NEWEST, VERSION, CannotGet, provide


@pytest.fixture(autouse=True)
def no_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))


def test_a_missing_tool_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(CannotGet, match="apt-get is missing: install apt"):
        provide()


def test_packages_that_cannot_be_loaded_leave_nothing_behind(tmp_path, monkeypatch) -> None:
    tools(tmp_path, monkeypatch, "echo 'E: no network' >&2; exit 100")

    with pytest.raises(CannotGet, match=r"E: no network|debian-archive-keyring"):
        provide()

    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("version", "there", "expected"),
    [
        (VERSION, "24.11", "unpacked"),
        (VERSION, "26.05", "trixie has Slurm 26.05"),
        (NEWEST, "26.05", "unpacked"),
        (NEWEST, "27.11", "unpacked"),
        (NEWEST, "25.11", "forky has Slurm 25.11\nsid has Slurm 25.11"),
    ],
)
def test_a_suite_that_has_moved_on_is_used_only_for_the_newest_release(
    tmp_path, monkeypatch, version: str, there: str, expected: str
) -> None:
    tools(tmp_path, monkeypatch, DOWNLOADS.format(there=there))

    with pytest.raises(CannotGet, match=f"{expected}|debian-archive-keyring"):
        provide(version)


DOWNLOADS = """\
[ "${{0##*/}}" = apt-get ] || {{ echo unpacked >&2; exit 1; }}
for option; do
    cache=${{option#-oDir::Cache=}}
    [ "$cache" = "$option" ] || touch "$cache/archives/slurmctld_{there}.5-1_amd64.deb"
done"""


def tools(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let apt-get and dpkg-deb do this."""
    for name in ("apt-get", "dpkg-deb", "patchelf"):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
