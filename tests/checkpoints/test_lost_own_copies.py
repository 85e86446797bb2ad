"""Copies of what a job saved in its first attempt, and lost before the second."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import unpacked

from holdfast.apps.main import run

Commands = Callable[..., tuple[int, str]]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Checkpoints of torch.save."""
    unpacked("torch_save", tmp_path / "unpacked")
    (tmp_path / "unpacked" / "legacy" / "latest.pt").unlink()
    return tmp_path / "unpacked" / "legacy"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The empty directory of a new job."""
    folder = tmp_path / "primary"
    folder.mkdir()
    return folder


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "copies"


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Commands:
    def call(*argv: object) -> tuple[int, str]:
        code = run(["checkpoint", *map(str, argv)])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


def attempt(
    said: Commands, folder: Path, location: Path, number: int, job: str = "j"
) -> tuple[int, str]:
    at = ("--rank", 0, "--job", job, "--attempt", number)
    return said("guard", folder, *at, "--restore-from", location)


def save(recorded: Path, folder: Path) -> None:
    for path in recorded.iterdir():
        shutil.copy(path, folder)
        settled = time.time() - 60
        os.utime(folder / path.name, (settled, settled))


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def test_the_job_resumes_from_the_copy(
    recorded: Path, folder: Path, location: Path, said: Commands
) -> None:
    assert attempt(said, folder, location, 1)[0] == 0
    save(recorded, folder)
    assert said("mirror", folder, location, "--once")[0] == 0
    empty(folder)

    code, text = attempt(said, folder, location, 2)

    assert code == 0, text
    [restored] = folder.iterdir()
    assert f"{restored.name} was restored from {location}" in text


def test_another_job_does_not_get_it(
    recorded: Path, folder: Path, location: Path, said: Commands
) -> None:
    assert attempt(said, folder, location, 1, "before")[0] == 0
    save(recorded, folder)
    assert said("mirror", folder, location, "--once")[0] == 0
    empty(folder)
    folder.with_name(".primary.holdfast-history").unlink()

    for number in (1, 2):
        assert attempt(said, folder, location, number, "after") == (0, "")
        assert list(folder.iterdir()) == []


def test_a_job_that_has_not_saved_starts_again(
    folder: Path, location: Path, said: Commands
) -> None:
    for number in (1, 2, 3):
        assert attempt(said, folder, location, number) == (0, "")


def test_the_job_waits_while_its_only_copies_are_damaged(
    recorded: Path, folder: Path, location: Path, said: Commands
) -> None:
    assert attempt(said, folder, location, 1)[0] == 0
    save(recorded, folder)
    assert said("mirror", folder, location, "--once")[0] == 0
    empty(folder)
    for path in location.glob("*/file"):
        path.write_bytes(bytes(path.stat().st_size))

    code, text = attempt(said, folder, location, 2)

    assert (code, list(folder.iterdir())) == (1, [])
    assert "the job waits" in text


def test_the_job_waits_while_the_location_cannot_be_read(
    folder: Path, location: Path, said: Commands
) -> None:
    location.write_text("no directory")

    assert attempt(said, folder, location, 1) == (0, "")
    code, text = attempt(said, folder, location, 2)

    assert code == 1
    assert "the job waits" in text
