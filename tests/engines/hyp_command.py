"""AWS's command ``hyp`` in an environment of its own: 120 packages, which nothing else needs."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

VERSION: Final = "3.12.0"
PACKAGE: Final = f"sagemaker-hyperpod=={VERSION}"
_TIMEOUT_S: Final = 600.0


def provide_hyp() -> Path:
    """The command; installs it if that was never done (a minute, 470 MB).

    Raises:
        CalledProcessError: it cannot be installed; the output says why.

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


def _install(place: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    python = str(place / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    install = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    subprocess.run([*install, "--quiet", PACKAGE], check=True, timeout=_TIMEOUT_S)
