"""Run the programs that build and describe what is released."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_TIMEOUT_S: Final = 1800.0
_LINES: Final = 15


class CannotBuild(Exception):
    """Something cannot be built here; the text has the reason and the remedy."""


def output(
    *argv: str, timeout_s: float = _TIMEOUT_S, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program and return its output; ``environment`` is added to that of this process.

    Raises:
        CannotBuild: it failed, with its last 15 lines, or it took longer than ``timeout_s``.

    """
    name = Path(argv[0]).name
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            check=True,
            encoding="utf-8",
            env={**os.environ, **(environment or {})},
            timeout=timeout_s,
        )
    except subprocess.CalledProcessError as error:
        end = "\n".join(f"{error.stdout}{error.stderr}".splitlines()[-_LINES:])
        raise CannotBuild(f"{name} failed:\n{end}") from error
    except subprocess.TimeoutExpired as error:
        raise CannotBuild(f"{name} took longer than {timeout_s:.0f} s") from error
    return done.stdout.strip()
