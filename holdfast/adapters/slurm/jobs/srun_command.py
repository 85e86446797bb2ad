"""Parses command lines of srun, and builds the one that relaunches a step on other nodes. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

_MANY: Final = ":"
"""Separator between the components of a heterogeneous step on the command line of srun."""


_STREAM_VARIABLES: Final = ("SLURM_STDOUTMODE", "SLURM_STDERRMODE")
"""Variables of srun with the meaning of ``--output`` and ``--error``."""


_NAMES_NODES: Final = re.compile(r"-[wF]|--nodelist|--nodefile")
_REDIRECTS: Final = re.compile(
    r"-[uvlqHIkKOsXZEQ]*[oe]|--(?:out|outp|outpu|output|err|erro|error)(?:=|$)"
)
"""Options with abbreviations, and after flags in one word, as ``-uo log``."""


def is_bound(srun: Sequence[str]) -> bool:
    """Whether a command line of srun names its nodes, or has several components.

    May be a false True, see ``_has_option``.
    """
    return _MANY in srun or _has_option(srun[1:], _NAMES_NODES)


def redirects_output(srun: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether srun writes output of the ranks elsewhere than to its own.

    May be a false True, see ``_has_option``.
    """
    if any(environment.get(name) for name in _STREAM_VARIABLES):
        return True
    parts: list[list[str]] = [[]]
    for word in srun[1:]:
        if word == _MANY:
            parts.append([])
        else:
            parts[-1].append(word)
    return any(_has_option(part, _REDIRECTS) for part in parts)


def _has_option(arguments: Sequence[str], pattern: re.Pattern[str]) -> bool:
    """Whether one of these options is in arguments of srun.

    Only arguments that may be options of srun are checked, not those of the program. An option
    without a value right before the program hides where the options end; then the result may be a
    false True.
    """
    before = "-"
    for word in arguments:
        if not word.startswith("-") and (not before.startswith("-") or "=" in before):
            break
        if word == "--":
            break
        if pattern.match(word):
            return True
        before = word
    return False


def relaunch_command(
    srun: Sequence[str], nodes: Sequence[str], *, bound: bool, overlap: bool
) -> list[str]:
    """Return the command line for the same step on other nodes.

    Args:
        srun: the original command line.
        nodes: nodes to launch on.
        bound: whether the command line names its nodes itself.
        overlap: whether a dead step still holds CPUs of the nodes, as its end was not reported.

    """
    place = [] if bound else [f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}"]
    return [srun[0], *place, *(["--overlap"] if overlap else []), *srun[1:]]
