"""The Dockerfile without Docker: its first stage is carried out, the rest is looked at."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from chart import DEPLOY

ROOT = DEPLOY.parent
FOLDER = DEPLOY / "docker"
Step = tuple[str, str]


def steps() -> list[Step]:
    """Instructions and their arguments, without comments and line ends."""
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    bare = "".join(line for line in text.splitlines(keepends=True) if line[0] != "#")
    lines = bare.replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


def stages() -> list[list[Step]]:
    """The steps of each stage, from its FROM on."""
    starts = [number for number, (word, _) in enumerate(steps()) if word == "FROM"]
    ends = [*starts[1:], None]
    return [steps()[start:end] for start, end in zip(starts, ends, strict=True)]


def copied() -> list[tuple[list[str], str]]:
    """What the first stage copies from the project, and where to."""
    words = [shlex.split(rest) for word, rest in stages()[0] if word == "COPY"]
    return [(sources, target) for *sources, target in words]


def pinned() -> dict[str, str]:
    """The packages of the image and their versions."""
    text = (ROOT / "requirements" / "image.txt").read_text(encoding="utf-8")
    return {
        _normal(name): version
        for name, version in re.findall(r"^([\w.-]+)==([^ ]+)", text, re.MULTILINE)
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_everything_is_built_on_one_base_pinned_by_digest() -> None:
    arguments = [rest for word, rest in steps() if word == "ARG"]

    assert [stage[0] for stage in stages()] == [
        ("FROM", "${PYTHON} AS build"),
        ("FROM", "${PYTHON}"),
    ]
    [base] = arguments
    assert re.fullmatch(r"PYTHON=python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)


def test_what_is_copied_is_there_and_reaches_the_builder() -> None:
    rules = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    sources = {source for found, _ in copied() for source in found}

    assert rules[0] == "*"
    assert allowed == sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_image_runs_as_nobody_and_holds_no_tools_but_two() -> None:
    last = stages()[1]
    commands = " ".join(rest for word, rest in last if word == "RUN")

    assert [rest for word, rest in last if word == "USER"] == ["65532:65532"]
    assert last[-1] == ("ENTRYPOINT", '["holdfast"]')
    assert "pip uninstall --yes" in commands
    installed = re.findall(r"apt-get install --yes --no-install-recommends ([\w -]+?) &&", commands)
    assert installed == ["stress-ng systemd"]
    assert [rest for word, rest in last if word == "COPY"] == [
        "--from=build /opt/holdfast /opt/holdfast"
    ]


def test_packages_come_by_hash_and_nothing_else_is_fetched() -> None:
    installs = re.findall(r"pip (?:--python \S+ )?install ([^&]+)", dict(stages()[0])["RUN"])

    by_hash = [one for one in installs if "--require-hashes" in one]
    assert [one.split()[-1] for one in by_hash] == ["build.txt", "image.txt"]
    assert all("--no-deps --no-index" in one for one in installs if one not in by_hash)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first stage leaves in /opt/holdfast."""
    folder = tmp_path_factory.mktemp("image")
    work = folder / "src"
    work.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    for sources, target in copied():
        for source in sources:
            place = work / target if (ROOT / source).is_dir() else work / Path(source).name
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=ignored)
            else:
                shutil.copy(ROOT / source, place)
    subprocess.run([sys.executable, "-m", "venv", folder / "base"], check=True)
    command = dict(stages()[0])["RUN"].replace("/wheels", f"{folder}/wheels")
    command = command.replace("/opt/holdfast", f"{folder}/opt")
    path = f"{folder / 'base' / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-euc", command],
        cwd=work,
        env={**os.environ, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    if "Failed to establish a new connection" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return folder / "opt"


def _run(built: Path, *arguments: str) -> str:
    done = subprocess.run(
        [built / "bin" / arguments[0], *arguments[1:]],
        check=False,
        capture_output=True,
        encoding="utf-8",
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_stage_installs_what_is_pinned_and_no_pip(built: Path) -> None:
    listing = (
        "from importlib.metadata import distributions\n"
        "print(*(one.name + '==' + one.version for one in distributions()))"
    )
    installed = dict(one.split("==") for one in _run(built, "python", "-c", listing).split())
    found = {_normal(name): version for name, version in installed.items()}
    found.pop("holdfast")

    assert "pip" not in found
    assert found.items() <= pinned().items()


def test_the_image_runs_the_agent_the_controller_and_the_commands(built: Path) -> None:
    assert "usage: holdfast agent" in _run(built, "holdfast", "agent", "--help")
    assert "--config" in _run(built, "holdfast", "controller", "--help")
    assert "incidents" in _run(built, "holdfast", "--help")
    for module in ("boto3", "yaml", "pynvml"):
        _run(built, "python", "-c", f"import {module}")
