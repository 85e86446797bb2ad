"""``HOLDFAST_CHECKPOINT_MIRROR``: the guard copies what its command saves, and restores it."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded import unpacked

from tests.engines.checkpoint_watches import watches_of
from tests.engines.waiting import until

GUARD = (sys.executable, "-m", "holdfast", "checkpoint", "guard")
COMMAND = """
echo "has $(ls "$HOLDFAST_CHECKPOINT_DIR" | wc -l), mirror: '$HOLDFAST_CHECKPOINT_MIRROR'"
until [ -e "$1" ]; do sleep 0.1; done
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "primary"
    folder.mkdir()
    return folder


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "copies"


@pytest.fixture
def end(tmp_path: Path) -> Iterator[Path]:
    """File whose creation ends the command, at the latest after the test."""
    yield tmp_path / "end"
    (tmp_path / "end").touch()


def guarded(
    folder: Path, end: Path, attempt: int, rank: int, **environment: str
) -> subprocess.Popen[str]:
    key = ("--job=j", f"--attempt={attempt}", f"--rank={rank}")
    return subprocess.Popen(
        [*GUARD, str(folder), *key, "--", "sh", "-c", COMMAND, "command", str(end)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str], end: Path) -> str:
    """What the guard and its command print."""
    end.touch()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    end.unlink()
    return out


def save(folder: Path, tmp_path: Path) -> set[str]:
    """Checkpoints as if saved a minute ago; their names."""
    unpacked("torch_save", tmp_path / "unpacked")
    (tmp_path / "unpacked" / "legacy" / "latest.pt").unlink()
    shutil.copytree(tmp_path / "unpacked" / "legacy", folder, dirs_exist_ok=True)
    for path in folder.iterdir():
        os.utime(path, (time.time() - 60,) * 2)
    return {path.name for path in folder.iterdir()}


def copied(location: Path) -> set[str]:
    return {path.parent.name.partition("@")[0] for path in location.glob("*/manifest.json")}


def mirrors_of(folder: Path) -> list[int]:
    return watches_of(folder, "mirror")


def test_what_the_command_saves_is_copied_and_restored_when_it_is_lost(
    folder: Path, location: Path, end: Path, tmp_path: Path
) -> None:
    mirror = {"HOLDFAST_CHECKPOINT_MIRROR": str(location)}
    first = guarded(folder, end, 1, 0, **mirror)
    names = save(folder, tmp_path)
    until(lambda: copied(location) == names)
    assert len(mirrors_of(folder)) == 1
    ended(first, end)
    until(lambda: mirrors_of(folder) == [])
    for path in folder.iterdir():
        path.unlink()

    second = ended(guarded(folder, end, 2, 0, **mirror), end)

    assert f"was restored from {location}" in second
    assert "has 1, mirror: ''" in second


def test_another_rank_and_a_guard_without_a_location_copy_nothing(
    folder: Path, location: Path, end: Path, tmp_path: Path
) -> None:
    save(folder, tmp_path)
    plain = guarded(folder, end, 1, 0)
    rank = guarded(folder, end, 1, 1, HOLDFAST_CHECKPOINT_MIRROR=str(location))
    assert rank.stdout is not None
    assert rank.stdout.readline() == "has 3, mirror: ''\n"
    assert mirrors_of(folder) == []
    end.touch()
    for process in (plain, rank):
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert not location.exists()


def test_a_location_that_cannot_be_written_is_in_the_output_of_the_job(
    folder: Path, location: Path, end: Path, tmp_path: Path
) -> None:
    location.write_text("no directory")
    output = tmp_path / "output"
    with output.open("w") as file:
        argv = [*GUARD, str(folder), "--rank=0", "--mirror-to", str(location)]
        command = ("--", "sh", "-c", COMMAND, "command", str(end))
        process = subprocess.Popen([*argv, *command], stdout=file, stderr=file)
        save(folder, tmp_path)
        until(lambda: f"cannot read {location}" in output.read_text())
        end.touch()
        assert process.wait(120) == 0
