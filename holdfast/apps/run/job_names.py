"""Names and IDs of jobs: a name is chosen and may be reused, an ID never is."""

import re
import secrets
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

JOB_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

_ID_BYTES: Final = 4
"""Random bytes of an ID. Two of 1,000 jobs with one name get the same ID with probability 1 in
8,600, and the store refuses it."""


def default_name(taken: Collection[str], command: Sequence[str]) -> str:
    """Return ``<script>-<n>``, with the smallest n for which it is not in ``taken``."""
    scripts = [word for word in command if word.endswith(".py")] or list(command[:1])
    stem = re.sub(r"[^A-Za-z0-9]+", "-", Path(scripts[0]).stem if scripts else "").strip("-")
    stem = stem[:50] or "run"
    return next(name for n in range(1, len(taken) + 2) if (name := f"{stem}-{n}") not in taken)


def new_job_id(name: str) -> str:
    """Return an ID for a job: its name, and random hexadecimal digits."""
    return f"{name}-{secrets.token_hex(_ID_BYTES)}"
