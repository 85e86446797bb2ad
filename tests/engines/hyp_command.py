"""AWS's command ``hyp`` in an environment of its own: 120 packages, which nothing else needs."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

VERSION: Final = "3.12.0"
PACKAGE: Final = f"sagemaker-hyperpod=={VERSION}"
_WITH_WHEEL: Final = "zstandard>=0.22"
"""Instead of the version that the command pins, which has to be compiled, 4 minutes."""

_TIMEOUT_S: Final = 600.0
_RUN: Final = """
import gc, runpy, sys
gc.disable()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a Python program without garbage collection, which takes ``hyp`` a third of its time."""

_API_SERVERS: Final = "127.0.0.1,198.18.0.0/15"
"""Hosts of the API servers of tests: without nodes, and with real ones."""


def provide_hyp() -> Path:
    """The command; installs it if that was never done (a minute, 470 MB).

    Raises:
        CalledProcessError: it cannot be installed; the output has the reason.

    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("HOLDFAST_CACHE") or Path(home, "holdfast")).absolute()
    tag = f"{sys.version_info.major}{sys.version_info.minor}"
    place = cache / f"hyp-{VERSION}-{tag}"
    cache.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            _install(place)
            (place / "complete").touch()
    return place / "bin" / "hyp"


def run_hyp(home: Path, kubeconfig: Path, *arguments: str) -> str:
    """What a command prints, with the context of a kubeconfig.

    Args:
        home: folder in which it may write.
        kubeconfig: of a user who may do what it needs.
        arguments: of the command.

    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    environment = {
        **kept,
        "HOME": str(home),
        "KUBECONFIG": str(kubeconfig),
        "AWS_REGION": "us-west-2",
        "HTTPS_PROXY": "http://127.0.0.1:9",  # no telemetry
        "NO_PROXY": _API_SERVERS,
        "PYTHONWARNINGS": "ignore",
    }
    hyp = provide_hyp()
    done = subprocess.run(
        [hyp.with_name("python"), "-c", _RUN, hyp, *arguments],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    if done.returncode:
        raise AssertionError(f"hyp {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


def _install(place: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    python = str(place / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    install = [python, "-m", "pip", "install"]
    if uv:
        (place / "override.txt").write_text(f"{_WITH_WHEEL}\n", encoding="utf-8")
        install = [uv, "pip", "install", "--python", python,
                   "--override", str(place / "override.txt")]  # fmt: skip
    subprocess.run([*install, "--quiet", PACKAGE], check=True, timeout=_TIMEOUT_S)
