"""``holdfast check baseline``: computes thresholds from the results of a fleet."""

from pathlib import Path
from typing import Final

import click

from holdfast.apps.checks.baseline import ENOUGH, Spread, as_toml, spreads
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import Column, OutputFormat, print_rows
from holdfast.apps.cli.parameters import Number

_TOML: Final = "toml"
_COLUMNS: Final = (
    Column[Spread](title="instance type", cell=lambda one: one.instance_type),
    Column[Spread](title="measure", cell=lambda one: one.measure),
    Column[Spread](title="count", cell=lambda one: one.count),
    Column[Spread](title="least", cell=lambda one: f"{one.least:.4g}"),
    Column[Spread](title="median", cell=lambda one: f"{one.median:.4g}"),
    Column[Spread](title="greatest", cell=lambda one: f"{one.greatest:.4g}"),
    Column[Spread](title="threshold", cell=lambda one: f"{one.threshold:.4g}"),
)


@examples(
    "holdfast check baseline results/*.json --percentile 5",
    "holdfast check baseline results/*.json --output toml",
)
@click.command()
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--percentile",
    type=Number(0, 50),
    default=1.0,
    show_default=True,
    help="Percentage of nodes that may be worse than the threshold.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(
        [OutputFormat.TABLE.value, _TOML, OutputFormat.JSON.value, OutputFormat.YAML.value]
    ),
    default=OutputFormat.TABLE.value,
    show_default=True,
    help="Output format; pass toml output to later checks with --config.",
)
def baseline(files: tuple[Path, ...], percentile: float, output: str) -> None:
    """Compute thresholds from the measurements of checks that passed.

    FILE is the output of check node, check pair, check pairs or check show with --output json.
    """
    found = spreads(files, percentile)
    for one in found:
        if one.count < ENOUGH:
            click.echo(
                f"holdfast: {one.instance_type}: {one.measure} has "
                f"{one.count} value{'s' * (one.count > 1)}; "
                f"a threshold requires {ENOUGH} or more",
                err=True,
            )
    if output == _TOML:
        click.echo(as_toml(found), nl=False)
    else:
        print_rows(found, _COLUMNS, output=output, empty="No passed check has measurements.")
