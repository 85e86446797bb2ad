"""Compares the step that a file of a checkpoint holds with the step of the checkpoint's name.

A file of another step is whole, and its checksums are right. Scripts may count or name steps in
another way, so a difference only counts if file and name agree in the older checkpoint.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.adapters.checkpoints.contract import damaged
from holdfast.adapters.checkpoints.torch_file import saved_number
from holdfast.model.checkpoints import Problem

ReadStep = Callable[[Path], int | None]
"""Returns the step that a file holds; None if it holds none or cannot be read."""


def saved_step(*keys: str) -> ReadStep:
    """Return a function that reads the first of the keys that a saved dict has."""

    def read(path: Path) -> int | None:
        return next((step for key in keys if (step := saved_number(path, key)) is not None), None)

    return read


def step_problems(
    file: Path, other: Path | None, steps: tuple[int | None, int | None], read: ReadStep
) -> Iterator[Problem]:
    """Yield the problem of a file that holds another step than its checkpoint.

    Args:
        file: file of the checkpoint.
        other: the same file of the older checkpoint; None if there is none.
        steps: step by the name of the checkpoint and of the older one.
        read: reads the step that a file holds.

    """
    step, before = steps
    if other is None or step is None or before is None or step == before:
        return
    found = read(file)
    if found is not None and found != step and other.is_file() and read(other) == before:
        yield damaged(f"holds step {found} instead of {step}")
