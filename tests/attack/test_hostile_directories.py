"""Links and FIFOs that another user puts beside checkpoints redirect nothing and block nobody."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoints"))
from recorded import content, unpacked

NOBODY = 65534
NAMES = ("attempt", "history", "manifest.checkpoint-6", "reported", "saves", "verified", "watch")
PLANT = """
import os, sys
kind, victim, *paths = sys.argv[1:]
for path in paths:
    os.symlink(victim, path) if kind == "link" else os.mkfifo(path)
"""
COMMANDS = {
    "list": ["list"],
    "verify": ["verify"],
    "watch once": ["watch", "--once"],
    "watch": ["watch"],
    "guard": ["guard", "--rank", "0"],
    "mirror": ["mirror", "--once"],
}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an attack changes its user: run as root")


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_others_put_beside_checkpoints_redirects_nothing_and_blocks_nobody(
    public: Path, kind: str, command: str
) -> None:
    base, victim = public / "scratch", public / "victim"
    base.mkdir()
    folder = unpacked("hf_trainer", base) / "one_file"
    for path in (base, folder):
        path.chmod(0o1777)
    saved = content(folder)
    planted = [base / f".{folder.name}.holdfast-{name}" for name in NAMES]
    planted += [folder / f".holdfast-{name}" for name in NAMES]
    done = subprocess.run(
        ["python3", "-c", PLANT, kind, str(victim), *map(str, planted)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr

    verb, *options = COMMANDS[command]
    places = [str(folder), str(public / "copies")] if verb == "mirror" else [str(folder)]
    argv = [sys.executable, "-m", "holdfast", "checkpoint", verb, *places, *options]
    ended = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)

    assert not victim.exists()
    assert "Traceback" not in ended.stderr
    if command == "watch":
        assert ended.returncode == 1
        assert ".one_file.holdfast-watch: " in ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr
    assert {name: content(folder).get(name) for name in saved} == saved
