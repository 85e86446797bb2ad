"""``holdfast completion``: prints shell completion scripts."""

from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

_SCRIPTS: Final = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}

_HELP: Final = """Print the completion script of SHELL, which is bash, zsh or fish.

\b
Add this to      ~/.bashrc:  eval "$(holdfast completion bash)"
                  ~/.zshrc:  eval "$(holdfast completion zsh)"  below compinit
~/.config/fish/config.fish:  holdfast completion fish | source
"""


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(list(_SCRIPTS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    script = _SCRIPTS[shell](context.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE")
    click.echo(script.source())
