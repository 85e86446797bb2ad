"""``holdfast check``: deep health checks of nodes, run manually or by a scheduler."""

from copy import copy

import click

from holdfast.apps.cli.check.baseline import baseline
from holdfast.apps.cli.check.job import epilog, health, prolog
from holdfast.apps.cli.check.node import node
from holdfast.apps.cli.check.pair import pair, serve
from holdfast.apps.cli.check.pairs import pairs
from holdfast.apps.cli.check.replay import replay
from holdfast.apps.cli.check.show import show
from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.nodes.requests import check as deep


@click.group(cls=FullHelpGroup)
def check() -> None:
    """Run health checks under load before nodes accept jobs."""


for _command in (node, pair, serve, pairs, replay, baseline, prolog, epilog, health):
    check.add_command(_command)
check.add_command(show)
_EXAMPLES = (
    "holdfast check deep 0 --wait",
    "holdfast check deep gpu-17 gpu-18 --platform slurm --dry-run",
)
check.add_command(examples(*_EXAMPLES)(copy(deep)), "deep")
