"""Help texts of commands: examples, and lists of commands."""

from collections.abc import Callable
from typing import Final, TypeVar

import click

C = TypeVar("C", bound=click.Command)

_SENTENCE: Final = 1000
"""Longer than any sentence of help."""


def examples(*lines: str) -> Callable[[C], C]:
    """Add command lines, as a person would type them, to the help of a command."""

    def decorate(command: C) -> C:
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
        return command

    return decorate


class FullHelpGroup(click.Group):
    """A group that lists each command with its whole first sentence; click would cut it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See ``click.Group.format_commands``."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(_SENTENCE)) for name, one in found.items() if one]
            )
