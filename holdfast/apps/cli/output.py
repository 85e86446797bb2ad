"""One look for all commands: tables for people, JSON and YAML for programs.

A table is cut to the width of the terminal and colored there; elsewhere it is plain text in full.
Colors follow https://no-color.org: ``NO_COLOR`` set to anything turns them off.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import click

from holdfast.apps.exit_codes import ExitCode
from holdfast.kit.serial import to_plain
from holdfast.kit.units import format_duration
from holdfast.kit.yaml_text import to_yaml

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

NOTHING: Final = "-"
"""Stands for an empty cell."""

_GAP: Final = "  "
_NARROWEST: Final = 8
"""Columns are cut down to this width first; below that a cell tells little."""

_COLORS: Final = {
    "green": "schedulable running succeeded released ok passed",
    "yellow": (
        "joining checking quarantined draining rebooting replacing waiting starting stopping "
        "cancelled warning open"
    ),
    "red": "failed lost fatal interrupted",
}
_COLOR_OF: Final = {word: color for color, words in _COLORS.items() for word in words.split()}


class Output(StrEnum):
    """In which form a command prints its result."""

    TABLE = "table"
    WIDE = "wide"
    """The table with its wide columns, not cut to the terminal."""

    JSON = "json"
    YAML = "yaml"


LISTS: Final = (Output.TABLE, Output.WIDE, Output.JSON, Output.YAML)
"""What a command offers that lists or describes."""

RESULTS: Final = (Output.TABLE, Output.JSON, Output.YAML)
"""What a command offers that does something, and tells what."""


@dataclass(frozen=True, kw_only=True)
class Column(Generic[T]):
    """One column of a table."""

    title: str
    cell: Callable[[T], object]
    """The cell of a row; None and an empty text are shown as a dash."""

    wide: bool = False
    """Shown with ``--output wide`` only."""

    minor: bool = False
    """Cut before any other where a table is too wide."""


def output_option(*formats: Output) -> Callable[[F], F]:
    """The option ``--output`` with the given forms; the first is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice([form.value for form in formats]),
        default=formats[0].value,
        show_default=True,
        help="Output format.",
    )


def yes_option(command: F) -> F:
    """The option ``--yes`` of a destructive command, for ``confirm_or_abort``."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def dry_run_option(command: F) -> F:
    """The option ``--dry-run`` of a command that changes something."""
    text = "Print the planned changes and exit."
    return click.option("--dry-run", is_flag=True, help=text)(command)


def print_rows(rows: Sequence[T], columns: Sequence[Column[T]], *, output: str, empty: str) -> None:
    """Print things of one kind: a table, or one array for programs.

    Args:
        rows: dataclasses or dictionaries; programs are shown each of them whole.
        columns: of the table.
        output: a value of ``Output``.
        empty: the sentence to say, on standard error, when there are no rows.

    """
    if is_document(output):
        print_document(rows, output)
        return
    if not rows:
        click.echo(empty, err=True)
        return
    is_wide = output == Output.WIDE
    shown = [column for column in columns if is_wide or not column.wide]
    cells = [[printable(column.cell(row)) for column in shown] for row in rows]
    width = None if is_wide else _terminal_width()
    minor = [number for number, column in enumerate(shown) if column.minor]
    titles = [column.title for column in shown]
    for line in format_table(titles, cells, width=width, minor=minor):
        click.echo(line, color=_wants_color())


def print_details(pairs: Iterable[tuple[str, object]]) -> None:
    """Print one thing: a line for each name and its value, the values aligned."""
    cells = [(name, printable(value)) for name, value in pairs]
    width = max(len(name) for name, _ in cells) + 1
    for name, value in cells:
        click.echo(f"{name + ':':<{width}}{_GAP}{_colored(value, value)}", color=_wants_color())


def is_document(output: str) -> bool:
    """Whether a form is for programs."""
    return output in (Output.JSON, Output.YAML)


def print_document(value: object, output: str) -> None:
    """Print one JSON or YAML document: an array for several things, an object for one."""
    plain = to_plain(value)
    if output == Output.YAML:
        click.echo(to_yaml(plain), nl=False)
    else:
        click.echo(json.dumps(plain, indent=2))


def print_json(value: object) -> None:
    """Print one JSON document where there is no choice."""
    print_document(value, Output.JSON)


def print_next(value: object, output: str) -> None:
    """Print one of several documents that come bit by bit: a line of JSON, or YAML after ---."""
    if output == Output.YAML:
        click.echo("---")
        print_document(value, output)
    else:
        click.echo(json.dumps(to_plain(value)))


def format_table(
    titles: Sequence[str],
    cells: Sequence[Sequence[str]],
    *,
    width: int | None,
    minor: Sequence[int] = (),
) -> list[str]:
    """The lines of a table, its columns aligned.

    Args:
        titles: of the columns.
        cells: of each row.
        width: characters that a line has at most; None for as many as it needs. What is too wide
            is cut: first the columns of ``minor``, at last the first one, which tells rows apart.
        minor: numbers of columns.

    """
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    if width is not None:
        room = width - len(_GAP) * (len(widths) - 1)
        for least in (_NARROWEST, 1):
            for numbers in (minor, range(1, len(widths)), range(1)):
                _cut(widths, numbers, room, least)
    lines = [_line([title.upper() for title in titles], widths, color=False)]
    return lines + [_line(row, widths, color=True) for row in cells]


def _cut(widths: list[int], numbers: Sequence[int], room: int, least: int) -> None:
    """Make columns narrower, always the widest of ``numbers``, until all fit into ``room``."""
    while numbers and sum(widths) > room:
        widest = max(numbers, key=lambda number: widths[number])
        if widths[widest] <= least:
            return
        widths[widest] -= 1


def age(since: datetime | None, now: datetime) -> str:
    """How long ago ``since`` was, to two units; a dash if it has not been."""
    return NOTHING if since is None else format_duration(now - since)


def confirm_or_abort(question: str, *, yes: bool) -> None:
    """Ask before a destructive act; returns only if it may go on.

    Raises:
        click.UsageError: nobody is there to ask, and ``--yes`` was not given.
        click.exceptions.Exit: the answer is no.

    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Standard input is not a terminal: confirm with --yes.")
    if not click.confirm(question, err=True):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(ExitCode.FAILED)


def is_terminal() -> bool:
    """Whether standard output is a terminal, on which things can move."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _line(cells: Sequence[str], widths: Sequence[int], *, color: bool) -> str:
    parts = []
    for cell, width in zip(cells, widths, strict=True):
        text = cell if len(cell) <= width else cell[: width - 1] + "…"
        shown = _colored(text, cell) if color else text
        parts.append(shown + " " * (width - len(text)))
    return _GAP.join(parts).rstrip()


def printable(value: object) -> str:
    """Text that may come from a kernel log or a file name must not steer the terminal."""
    text = NOTHING if value is None or value == "" else str(value)
    return "".join(char if char.isprintable() else "�" for char in text)


def _colored(text: str, whole: str) -> str:
    """A text in the color of a word of which it may be a part."""
    color = _COLOR_OF.get(whole.lower())
    return click.style(text, fg=color) if color else text


def _wants_color() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR")


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


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
