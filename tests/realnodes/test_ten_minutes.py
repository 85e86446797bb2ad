"""Every command of docs/tutorial/kubernetes-in-ten-minutes.md works as written, in its order."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorial/kubernetes-in-ten-minutes.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
READ_ONLY = ("kubectl get", "kubectl logs", "kubectl wait", "NODE=")
CHECKPOINTS = Path("/var/tmp/holdfast-tutorial")
"""Where the page has them."""

DEADLINE_S = 120


def steps() -> Iterator[tuple[str, list[str]]]:
    """Commands of the second terminal, each with the lines that the page shows."""
    for body in BLOCK.findall(PAGE):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, shown


def is_shown(shown: list[str], printed: str) -> bool:
    """Whether lines contain those of the page, in its order; names of nodes differ."""
    rest = iter(printed.splitlines())
    names = re.compile(r"(node|spare)-\d+")
    return all(any(names.sub("", line) in names.sub("", one) for one in rest) for line in shown)


@pytest.fixture
def folder(node_programs: dict[str, Path], tmp_path: Path) -> Iterator[Path]:
    """A checkout in which the first terminal runs ``make cluster``; it ends with Ctrl-C."""
    assert {*node_programs} >= {"kubectl", "helm"}
    shutil.rmtree(CHECKPOINTS, ignore_errors=True)  # of a run that was interrupted
    for name in ("deploy", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    terminal = subprocess.Popen(
        [sys.executable, ROOT / "tests/realnodes/ten_minutes.py", tmp_path / "build/cluster"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    try:
        assert terminal.stdout is not None
        assert b"The cluster is up" in terminal.stdout.readline()
        yield tmp_path
    finally:
        terminal.send_signal(signal.SIGINT)
        terminal.communicate()
    assert terminal.returncode == 0
    assert not (tmp_path / "build/cluster").exists()


def test_every_command_of_the_tutorial_works(folder: Path) -> None:
    said = ""
    for command, shown in steps():
        deadline = time.monotonic() + DEADLINE_S
        while True:
            done = subprocess.run(
                ["bash", "-ec", f"{said}{command}"],
                cwd=folder,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
            )
            is_done = done.returncode == 0 and is_shown(shown, done.stdout)
            if is_done or not command.startswith(READ_ONLY) or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        assert is_done, f"{command} printed\n{done.stdout}\nthe page shows {shown}"
        if command.startswith(("NODE=", ". ")):
            said += f"{command}\n"
