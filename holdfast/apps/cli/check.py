"""``holdfast check``: deep health checks of nodes, by hand or as a scheduler's command."""

import click

from holdfast.apps.cli.check_baseline import baseline
from holdfast.apps.cli.check_node import node
from holdfast.apps.cli.check_pairs import pairs


@click.group()
def check() -> None:
    """Put load on nodes before they take work, and judge how they bear it."""


for _command in (node, pairs, baseline):
    check.add_command(_command)
