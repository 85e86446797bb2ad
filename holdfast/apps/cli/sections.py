"""Parts of a description, each with an empty line before it."""

from collections.abc import Sequence
from typing import TypeVar

import click

from holdfast.apps.cli.output import Column, print_details, print_rows

T = TypeVar("T")


def print_section(
    title: str, rows: Sequence[T], columns: Sequence[Column[T]], *, output: str
) -> None:
    """Print a table under a heading; nothing if it has no rows."""
    if rows:
        click.echo(f"\n{title}")
        print_rows(rows, columns, output=output, empty="")


def print_lines(title: str, lines: Sequence[tuple[str, str]]) -> None:
    """Print lines under a heading, each with a name and none of them cut; nothing for none."""
    if lines:
        click.echo(f"\n{title}")
        print_details(lines)
