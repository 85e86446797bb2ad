"""The Dockerfile, read; ``test_built_image.py`` builds it."""

import re
import shlex

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


def test_everything_is_built_on_one_base_pinned_by_digest() -> None:
    arguments = [rest for word, rest in steps() if word == "ARG"]

    assert [stage[0] for stage in stages()] == [
        ("FROM", "${PYTHON} AS build"),
        ("FROM", "${PYTHON} AS runtime"),
        ("FROM", "runtime AS agent"),
        ("FROM", "runtime AS full"),
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


def test_the_images_run_as_nobody_and_hold_no_tools_but_two() -> None:
    _, runtime, agent, full = stages()
    commands = " ".join(rest for word, rest in runtime if word == "RUN")

    assert [rest for word, rest in runtime if word == "USER"] == ["65532:65532"]
    assert runtime[-1] == ("ENTRYPOINT", '["holdfast"]')
    assert "pip uninstall --yes" in commands
    installed = re.findall(r"apt-get install --yes --no-install-recommends ([\w -]+?);", commands)
    assert installed == ["stress-ng systemd"]
    assert agent[1:] == [("COPY", "--from=build /opt/agent /opt/holdfast")]
    assert full[1:] == [("COPY", "--from=build /opt/holdfast /opt/holdfast")]


def test_packages_come_by_hash_and_nothing_else_is_fetched() -> None:
    [command] = [rest for word, rest in stages()[0] if word == "RUN"]
    found = re.findall(r"(?:^|[ &])install (--[^&;]+)", command)
    installs = [one.strip() for one in found if '"$@"' not in one]

    by_hash = [one for one in installs if "--require-hashes" in one]
    assert [one.split()[-1] for one in by_hash] == ["build.txt", "agent.txt", "image.txt"]
    assert all("--no-deps --no-index" in one for one in installs if one not in by_hash)
