"""requirements/*.txt: what pyproject.toml asks for, in exact versions with hashes."""

import re
import sys

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from source_tree import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from lock import FOLDER, LOCKS, requirements

ENTRY = re.compile(r"^([\w.-]+)==(\S+?)(?: ; (.+?))?(?: \\)?$")


def entries(name: str) -> list[tuple[str, Version, str, int]]:
    """Name, version and marker of each package, and how many hashes it has."""
    found: list[tuple[str, Version, str, int]] = []
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("    --hash=sha256:"):
            package, version, marker, hashes = found.pop()
            found.append((package, version, marker, hashes + 1))
        elif line and not line.startswith("#"):
            matched = ENTRY.match(line)
            assert matched, f"{name}: {line}"
            package, version, marker = matched.groups()
            found.append((canonicalize_name(package), Version(version), marker or "", 0))
    return found


def test_every_file_is_one_that_make_lock_writes() -> None:
    assert {path.name for path in FOLDER.iterdir()} == LOCKS.keys()


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_satisfies_pyproject(name: str) -> None:
    locked = entries(name)
    environment = default_environment()
    for line in requirements(LOCKS[name]):
        wanted = Requirement(line)
        if wanted.marker and not wanted.marker.evaluate():
            continue
        versions = [
            version
            for package, version, marker, _ in locked
            if package == canonicalize_name(wanted.name)
            and (not marker or Requirement(f"x; {marker}").marker.evaluate(environment))
        ]
        assert versions, f"{name} lacks {wanted.name}; run: make lock"
        assert all(version in wanted.specifier for version in versions), f"{line}; run: make lock"


@pytest.mark.parametrize("name", LOCKS)
def test_everything_locked_has_hashes_and_no_address(name: str) -> None:
    assert [package for package, _, _, hashes in entries(name) if not hashes] == []
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert re.search(r"https?:|--index|--find-links|file:", text) is None
