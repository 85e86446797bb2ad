"""Reads settings from ``slurm.conf``, for hosts and moments without slurmctld."""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CONF: Final = "SLURM_CONF"
"""Environment variable: where Slurm's commands find ``slurm.conf``."""

_DEFAULTS: Final = (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"))
"""Default of Slurm's commands, and the copy of ``slurmd --conf-server``."""


def conf_settings(conf: Path | None) -> dict[str, str]:
    """Return the settings in ``conf``, or in the file that Slurm's commands would use.

    Empty if there is none; files that it includes are not read.
    """
    given = conf or os.environ.get(CONF)
    for path in (Path(given),) if given else _DEFAULTS:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        pairs = (line.split("#")[0].partition("=") for line in lines)
        return {key.strip(): value.strip() for key, _, value in pairs}
    return {}


def munge_socket(settings: Mapping[str, str]) -> str:
    """Return the socket of munged in ``AuthInfo``; empty for munge's default."""
    words = settings.get("AuthInfo", "").split(",")
    return next((word[7:] for word in words if word.startswith("socket=")), "")


def slurm_user(settings: Mapping[str, str]) -> int:
    """Return the UID of ``SlurmUser``; 0, Slurm's default, also if the user does not exist."""
    name = settings.get("SlurmUser", "root").partition("(")[0]
    try:
        return int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
    except KeyError:
        return 0
