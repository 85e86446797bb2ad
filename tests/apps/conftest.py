from pathlib import Path

import pytest
from written_runs import WrittenRuns


@pytest.fixture
def runs(tmp_path, monkeypatch, capfd):
    """Runs on disk, and the commands that read them."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    written = WrittenRuns(home, capfd)
    yield written
    written.close()


@pytest.fixture
def local_platform(tmp_path, monkeypatch) -> Path:
    """The empty ``HOLDFAST_HOME`` of clusters whose nodes are real processes on this machine."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    return home
