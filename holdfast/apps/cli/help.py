"""Help texts of commands: examples and command lists."""

from collections.abc import Callable
from typing import Final, TypeVar

import click

C = TypeVar("C", bound=click.Command)

_SENTENCE: Final = 1000
"""Maximum characters of a command's short help; no sentence is longer."""


def examples(*lines: str) -> Callable[[C], C]:
    """Add example command lines to the help of a command."""

    def decorate(command: C) -> C:
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
        return command

    return decorate


class FullHelpGroup(click.Group):
    """Group that lists each command with its whole first sentence, which click truncates."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See ``click.Group.format_commands``."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(_SENTENCE)) for name, one in found.items() if one]
            )
