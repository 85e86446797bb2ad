"""Examples at the end of a command's help."""

from collections.abc import Callable
from typing import TypeVar

import click

C = TypeVar("C", bound=click.Command)


def examples(*lines: str) -> Callable[[C], C]:
    """Add command lines, as a person would type them, to the help of a command."""

    def decorate(command: C) -> C:
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
        return command

    return decorate
