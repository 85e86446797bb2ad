"""Help texts of commands: examples and command lists."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, TypeVar

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
    if len(line) + 2 <= _WIDTH:
        return f"  {line}"
    import textwrap  # noqa: PLC0415 - few lines are longer

    return textwrap.fill(
        line,
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    ).replace("\n", " \\\n")


class FullHelpGroup(click.Group):
    """Group that lists each command with its whole first sentence, which click truncates.

    Commands of other modules are imported when they are called, or when all are listed. For an
    unknown command, the error suggests the nearest one.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str] | None = None, **more: Any) -> None:
        """Create the group; ``modules`` are modules by the name of the command that they define."""
        super().__init__(*args, **more)
        self._modules = modules or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See ``click.Group.list_commands``."""
        return sorted({*super().list_commands(ctx), *self._modules})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See ``click.Group.get_command``."""
        module = self._modules.get(cmd_name)
        if module is None:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(module), cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See ``click.Group.format_commands``."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(_SENTENCE)) for name, one in found.items() if one]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See ``click.Group.resolve_command``."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not ctx.resilient_parsing:
            import difflib  # noqa: PLC0415 - only a mistake needs it

            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)
