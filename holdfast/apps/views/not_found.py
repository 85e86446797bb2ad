"""Error of commands for names that do not exist, with the nearest names that do."""

import heapq
from collections.abc import Sequence
from typing import Final

from holdfast.model.errors import HoldfastError

NEAREST: Final = 5
"""Maximum number of names in an error message: of thousands of nodes, all would fill screens."""

_COMPARED: Final = 200
"""Maximum number of names, those with the longest common prefix, that are compared letter by
letter, which takes 0.1 ms for each."""


class NotFound(HoldfastError):
    """No object has the given name; the message lists the existing names."""


def no_such(kind: str, text: str, names: Sequence[str]) -> str:
    """Return the error message for an unknown name, with the nearest names."""
    if not names:
        return f"{kind} {text!r} not found; there are no {kind}s"
    import difflib  # noqa: PLC0415 - only a mistake needs it

    likely = heapq.nlargest(_COMPARED, names, key=lambda one: _shared(one, text))
    near = difflib.get_close_matches(text, likely, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    nearest = difflib.get_close_matches(text, likely, n=NEAREST, cutoff=0.0)
    more = f", and {len(names) - NEAREST} more" if len(names) > NEAREST else ""
    return f"{kind} {text!r} not found{hint or '.'} Existing {kind}s: {', '.join(nearest)}{more}"


def _shared(one: str, other: str) -> int:
    """Return the number of letters at the start of both."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
