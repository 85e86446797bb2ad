"""Expands Slurm hostlist expressions such as ``node[1-3,07],login``. Pure."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Final

LIMIT: Final = 100_000
"""Maximum number of names in one expression; Slurm's own limit is 65,536 per bracket."""

_RANGE: Final = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_PART: Final = re.compile(r"[^\[\],]+|\[([^\[\]]*)\]")


def expand(expression: str) -> tuple[str, ...]:
    """Return the host names of an expression, in its order.

    Raises:
        ValueError: the expression is invalid, or has more than ``LIMIT`` names.

    """
    names: list[str] = []
    for item in _items(expression):
        choices = list(_choices(item))
        count = 1
        for choice in choices:
            count *= len(choice)
        if len(names) + count > LIMIT:
            raise ValueError(f"{expression[:100]!r} expands to more than {LIMIT} nodes")
        names += ("".join(parts) for parts in product(*choices))
    return tuple(names)


def _items(expression: str) -> Iterator[str]:
    """Split an expression at the commas outside of brackets."""
    if not expression:
        return
    depth, begin = 0, 0
    for at, char in enumerate(expression):
        depth += (char == "[") - (char == "]")
        if char == "," and not depth:
            yield expression[begin:at]
            begin = at + 1
    yield expression[begin:]


def _choices(item: str) -> Iterator[list[str]]:
    at = 0
    for part in _PART.finditer(item):
        if part.start() != at:
            break
        at = part.end()
        yield [part[0]] if part[1] is None else list(_numbers(part[1], item))
    if at != len(item) or not item:
        raise ValueError(f"{item[:100]!r} is not a node list such as node[1-3,07]")


def _numbers(ranges: str, item: str) -> Iterator[str]:
    count = 0
    for one in ranges.split(","):
        found = _RANGE.fullmatch(one)
        if found is None:
            raise ValueError(f"{item[:100]!r} is not a node list such as node[1-3,07]")
        first, last = found[1], found[2] or found[1]
        if not int(first) <= int(last) < int(first) + LIMIT:
            raise ValueError(f"{item[:100]!r} has an invalid range")
        count += int(last) - int(first) + 1
        if count > LIMIT:
            raise ValueError(f"{item[:100]!r} expands to more than {LIMIT} nodes")
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"
