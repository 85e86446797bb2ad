"""Writes requirements/*.txt: exact versions with hashes of what pyproject.toml asks for.

    make lock                      adds and removes what pyproject.toml asks for, keeps versions
    make lock ARGS=--upgrade       moves to the newest versions

Needs uv. The files name no package index: pip installs from the one that is configured.
"""

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "requirements"


@dataclass(frozen=True, slots=True)
class Lock:
    """A file of requirements/."""

    parts: tuple[str, ...]
    """``build``: requirements of the build; ``project``: those of the package; and extras."""

    python: str
    """The oldest Python that it is for."""

    is_universal: bool = False
    """Whether it is for newer versions of Python, too."""


LOCKS: Final = {
    "build.txt": Lock(("build",), "3.11", is_universal=True),
    "release.txt": Lock(("build", "image"), "3.11", is_universal=True),
    "dev.txt": Lock(("build", "project", "demo", "dev", "docs"), "3.11", is_universal=True),
    "agent.txt": Lock(("project", "nvml"), "3.11", is_universal=True),
    "image.txt": Lock(("project", "aws", "kubernetes", "nvml"), "3.11", is_universal=True),
}


def main(arguments: Sequence[str]) -> int:
    """Compile each file with uv; ``arguments`` are passed on to it."""
    FOLDER.mkdir(exist_ok=True)
    for name, lock in LOCKS.items():
        command = [
            *("uv", "pip", "compile", "-", "--quiet", "--generate-hashes"),
            *("--no-emit-index-url", "--no-emit-find-links", "--no-annotate"),
            *("--custom-compile-command", "make lock"),
            *("--python-version", lock.python, "--output-file", f"requirements/{name}"),
            *(["--universal"] if lock.is_universal else ["--python-platform", "linux"]),
            *arguments,
        ]
        content = "\n".join(requirements(lock))
        subprocess.run(command, input=content, cwd=ROOT, check=True, text=True)
    return 0


def requirements(lock: Lock) -> list[str]:
    """What pyproject.toml asks for, e.g. ``click>=8.1``."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    parts = {
        "build": project["build-system"]["requires"],
        "project": project["project"]["dependencies"],
        **project["project"]["optional-dependencies"],
    }
    return [one for part in lock.parts for one in parts[part]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
