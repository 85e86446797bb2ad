"""The newer Slurm of the tests: why it cannot be had is told."""

import pytest

from tools.slurm_versions import CannotGet, provide


@pytest.fixture(autouse=True)
def no_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))


def test_a_missing_tool_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(CannotGet, match="apt-get is missing: install apt"):
        provide()


def test_packages_that_cannot_be_loaded_leave_nothing_behind(tmp_path, monkeypatch) -> None:
    for name in ("apt-get", "dpkg-deb"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho 'E: no network' >&2; exit 100\n", encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    with pytest.raises(CannotGet, match=r"E: no network|debian-archive-keyring"):
        provide()

    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]
