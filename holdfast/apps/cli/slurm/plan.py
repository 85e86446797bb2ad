"""``holdfast slurm plan``: plans actions for nodes from saved output of scontrol."""

import sys
from pathlib import Path
from typing import Final

import click

from holdfast.adapters.slurm.nodes.saved import parse_saved
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import LISTS, Column, output_option, print_rows
from holdfast.apps.clock import SystemClock
from holdfast.apps.controller.config import ControllerConfig
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.slurm.plan import NodePlan, plan_for
from holdfast.kit.config import load_config
from holdfast.model.errors import ConfigError

_STDIN: Final = Path("-")
_LARGEST: Final = 256 * 1024 * 1024
"""Bytes; 10,000 nodes have 8 MB as text and 32 MB as JSON."""

_COLUMNS: Final = [
    Column[NodePlan](title="node", cell=lambda one: one.node),
    Column[NodePlan](title="state", cell=lambda one: one.state),
    Column[NodePlan](title="reason", cell=lambda one: one.reason, wide=True),
    Column[NodePlan](title="seen", cell=lambda one: one.seen),
    Column[NodePlan](title="would", cell=lambda one: "; then ".join(one.steps) or "nothing"),
    Column[NodePlan](title="waits", cell=lambda one: one.waits),
]


@examples(
    "scontrol show node | holdfast slurm plan --nodes -",
    "holdfast slurm plan --nodes nodes.json --config controller.toml -o json",
)
@click.command()
@click.option(
    "--nodes",
    "source",
    type=click.Path(path_type=Path, allow_dash=True, dir_okay=False),
    required=True,
    help="Output of scontrol show node; - for standard input.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration file of the controller.  [default: the default policy]",
)
@output_option(*LISTS)
def plan(*, source: Path, config: Path | None, output: str) -> int:
    """Print what the controller would do with nodes, from saved output of scontrol.

    Needs neither Slurm nor a controller, and changes nothing. Assumes that the nodes were healthy
    before and that their agents report no faults; repairs in progress are left to their controller.

    The file is the output of scontrol -o, or JSON: of scontrol show node --json, or of sinfo --json
    on 22.05.
    """
    known = load_config(config, ControllerConfig) if config else ControllerConfig()
    try:
        nodes = parse_saved(_read(source))
    except ValueError as error:
        name = "standard input" if source == _STDIN else str(source)
        raise ConfigError(f"--nodes: {name}: {error}") from error
    planned = plan_for(nodes, known.nodes, SystemClock().now())
    print_rows(planned.nodes, _COLUMNS, output=output, empty="")
    if planned.stopped:
        click.echo(f"No repair would begin: {planned.stopped}", err=True)
    return ExitCode.OK


def _read(source: Path) -> str:
    """Return the text of a file or of standard input.

    Raises:
        ValueError: it cannot be read, or is too large.

    """
    try:
        if source == _STDIN:
            content = sys.stdin.buffer.read(_LARGEST)
        else:
            with source.open("rb") as file:
                content = file.read(_LARGEST)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    if len(content) == _LARGEST:
        raise ValueError(f"is larger than {_LARGEST // 2**20} MiB, expected nodes only")
    return content.decode("utf-8", errors="replace")
