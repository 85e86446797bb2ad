"""How a group of commands lists them."""

from typing import Final

import click

_SENTENCE: Final = 1000
"""Letters that no sentence has."""


class WholeGroup(click.Group):
    """A group that says of each command in a whole sentence what it does; click would cut it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See ``click.Group.format_commands``."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(_SENTENCE)) for name, one in found.items() if one]
            )
