"""Help texts of commands: examples and command lists."""

import textwrap
from collections.abc import Callable
from typing import Final, TypeVar

import click

C = TypeVar("C", bound=click.Command)

_WIDTH: Final = 76
"""Characters of a line of examples: 80, less click's indent and the backslash."""

_SENTENCE: Final = 1000
"""Maximum characters of a command's short help; no sentence is longer."""


def examples(*lines: str) -> Callable[[C], C]:
    """Add example command lines to the help of a command."""

    def decorate(command: C) -> C:
        command.epilog = "\b\nExamples:\n" + "\n".join(map(_continued, lines))
        return command

    return decorate


def _continued(line: str) -> str:
    """Return an example within the width of help texts, continued as in a shell."""
    return textwrap.fill(
        line,
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    ).replace("\n", " \\\n")


class FullHelpGroup(click.Group):
    """Group that lists each command with its whole first sentence, which click truncates."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See ``click.Group.format_commands``."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(_SENTENCE)) for name, one in found.items() if one]
            )
