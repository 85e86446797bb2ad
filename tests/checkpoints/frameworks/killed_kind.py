"""What ``killed_saves.py`` knows of a framework."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

PARTS, ITEMS, LAST = 24, 4096, 1000


class Kind(NamedTuple):
    """How a framework saves and loads."""

    save: Callable[[Path], Iterator[int]]
    """Saves one step after another; every floating-point number of a checkpoint is its step.

    Yields each step whose save has returned. If the framework has the loop, only the last one.
    """

    load: Callable[[Path], Iterable[Any]]
    """Loads a checkpoint; returns its tensors or arrays of such numbers."""

    inside: str = "run"
    """Name of the directory in which the framework makes its checkpoints."""

    longest: float = 0.08
    """Seconds within which the process is killed after its first file."""

    ranks: int = 0
    """Ranks of a process group, all of which are killed; 0 for a process without such."""

    is_asked: Callable[[Path], bool] = lambda _: False
    """Whether the kill has left what no program can repair, so that a person has to choose."""

    clean: Callable[[Path], object] = lambda _: None
    """Removes what a killed process leaves behind outside of the directory."""
