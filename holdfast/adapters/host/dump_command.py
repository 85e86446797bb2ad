"""Command that prints the flight recorder traces of the ranks of a container or of a node."""

import base64
import inspect
import shlex
import zlib
from datetime import timedelta
from functools import cache
from typing import Final

from holdfast.adapters.host import own_dumps
from holdfast.decisions.flight_recorder import DUMP_VARIABLES, PIPE_VARIABLE
from holdfast.decisions.rank_snapshots import LIBRARIES

_WAIT: Final = timedelta(seconds=7)
"""Maximum time until requested dumps are there, as in ``flight_dumps``."""

_RANKS: Final = (
    'f=; [ "$SLURM_JOB_ID" ] && [ "$(id -u)" = 0 ] && f=python3; '
    "for p in /proc/[0-9]*; do x=$(readlink $p/exe); case $x in */python*) "
    "tr '\\0' '\\n' <$p/environ | grep -q '^RANK=' && {{ [ -x \"$x\" ] || x=python3; "
    'exec "${{f:-$x}}" -I -S -c {code} {arguments}; }};; esac; done 2>/dev/null; true'
)
"""Runs code in the interpreter of a rank, or that of the node if the rank is in a container, or if
root looks at a job of Slurm: what a job runs is not executed as root."""


def dump_command(limit: timedelta) -> tuple[str, ...]:
    """Return a command that prints what ``own_dumps`` describes; nothing without a rank.

    Args:
        limit: time for the command, with that to start it.

    """
    wait = max(timedelta(), min(_WAIT, limit))
    arguments = (f"{wait.total_seconds():g}", LIBRARIES, PIPE_VARIABLE, *DUMP_VARIABLES)
    script = _RANKS.format(code=shlex.quote(_code()), arguments=shlex.join(arguments))
    return ("sh", "-c", script)


@cache
def _code() -> str:
    """Return the text of ``own_dumps``, compressed: it is part of the URL of a request."""
    text = inspect.getsource(own_dumps).encode("utf-8")
    packed = base64.b64encode(zlib.compress(text, 9)).decode("ascii")
    return f"import base64,zlib;exec(zlib.decompress(base64.b64decode('{packed}')))"
