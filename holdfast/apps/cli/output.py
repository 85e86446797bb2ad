"""Output of all commands: tables for people, JSON and YAML for programs.

On a terminal, a table is colored and truncated to its width; elsewhere it is complete plain text.
Colors follow https://no-color.org: any value of ``NO_COLOR`` disables them.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar

import click

from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.views.planned import PLANNED
from holdfast.kit.serial import to_plain
from holdfast.kit.units import format_duration
from holdfast.kit.yaml_text import to_yaml

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

NOTHING: Final = "-"
"""Text of an empty cell."""

_GAP: Final = "  "
_NARROWEST: Final = 8
"""Columns are first truncated to this width in characters; narrower cells are hard to read."""

_COLORS: Final = {
    "green": "schedulable running succeeded released ok passed",
    "yellow": (
        "joining checking quarantined draining rebooting replacing waiting starting stopping "
        "cancelled warning open"
    ),
    "red": "failed lost fatal interrupted",
}
_COLOR_OF: Final = {one: color for color, states in _COLORS.items() for one in states.split()}


class OutputFormat(StrEnum):
    """Output format of a command."""

    TABLE = "table"
    WIDE = "wide"
    """Table with its wide columns, not truncated to the terminal."""

    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    """Name of each row alone, for other commands."""


LISTS: Final = (OutputFormat.TABLE, OutputFormat.WIDE, OutputFormat.JSON, OutputFormat.YAML)
"""Formats of commands that list or describe."""

NAMED_LISTS: Final = (*LISTS, OutputFormat.NAME)
"""Formats of lists of objects with names."""

RESULTS: Final = (OutputFormat.TABLE, OutputFormat.JSON, OutputFormat.YAML)
"""Formats of commands that change something and print the result."""


class Column(NamedTuple, Generic[T]):
    """Column of a table."""

    title: str
    cell: Callable[[T], object]
    """Value of the cell of a row; None and the empty string are shown as a dash."""

    wide: bool = False
    """Shown with ``--output wide`` only."""

    minor: bool = False
    """Truncated before other columns if the table is too wide."""

    whole: bool = False
    """Never truncated or omitted: the row needs it. Its line is wrapped."""

    drop: int = 0
    """Left out if the table is too wide, higher numbers first; 0 for never."""


def output_option(*formats: OutputFormat) -> Callable[[F], F]:
    """Return the option ``--output`` with the given formats; the first is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice([form.value for form in formats]),
        default=formats[0].value,
        show_default=True,
        help="Output format.",
    )


def yes_option(command: F) -> F:
    """Add the option ``--yes`` of a destructive command, for ``confirm_or_abort``."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def dry_run_option(command: F) -> F:
    """Add the option ``--dry-run`` of a command that changes something."""
    text = "Print the planned changes and exit."
    return click.option("--dry-run", is_flag=True, help=text)(command)


def print_rows(
    rows: Sequence[T],
    columns: Sequence[Column[T]],
    *,
    output: str,
    empty: str,
    headers: bool = True,
) -> None:
    """Print objects of one kind as a table, or as one JSON or YAML array.

    Args:
        rows: dataclasses or dictionaries; JSON and YAML contain all their fields.
        columns: columns of the table.
        output: a value of ``OutputFormat``.
        empty: message for standard error if there are no rows.
        headers: whether to print the titles of the columns.

    """
    if is_document(output):
        print_document(rows, output)
        return
    if not rows:
        click.echo(empty, err=True)
        return
    if output == OutputFormat.NAME:
        for row in rows:
            click.echo(printable(columns[0].cell(row)))
        return
    is_wide = output == OutputFormat.WIDE
    width = None if is_wide else _terminal_width()
    all_cells = [
        (column, [printable(column.cell(row)) for row in rows])
        for column in columns
        if is_wide or not column.wide
    ]
    shown = all_cells if width is None else _without_dropped(all_cells, width)
    lines = format_table(
        [column.title for column, _ in shown],
        list(zip(*(cells for _, cells in shown), strict=True)),
        width=width,
        minor=[number for number, (column, _) in enumerate(shown) if column.minor],
        whole=[number for number, (column, _) in enumerate(shown) if column.whole],
    )
    for line in lines if headers else lines[1:]:
        click.echo(line, color=_wants_color())


def _without_dropped(
    columns: Sequence[tuple[Column[T], list[str]]], width: int
) -> Sequence[tuple[Column[T], list[str]]]:
    """Return the columns that fit with those that may be truncated at their least width."""
    shown = list(columns)

    def needed() -> int:
        widths = [max(map(len, [column.title, *cells])) for column, cells in shown]
        whole = [number for number, (column, _) in enumerate(shown) if column.whole]
        return _least(widths, whole) + len(_GAP) * (len(shown) - 1)

    for one in sorted(columns, key=lambda entry: -entry[0].drop):
        if not one[0].drop or needed() <= width:
            break
        shown.remove(one)
    return shown


def print_details(pairs: Iterable[tuple[str, object]]) -> None:
    """Print one object: a line for each name and its value, the values aligned."""
    cells = [(name, printable(value)) for name, value in pairs]
    width = max(len(name) for name, _ in cells) + 1
    for name, value in cells:
        click.echo(f"{name + ':':<{width}}{_GAP}{_colored(value, value)}", color=_wants_color())


def is_document(output: str) -> bool:
    """Whether a format is JSON or YAML."""
    return output in (OutputFormat.JSON, OutputFormat.YAML)


def print_document(value: object, output: str) -> None:
    """Print one JSON or YAML document: an array for several objects, an object for one."""
    plain = to_plain(value)
    if output == OutputFormat.YAML:
        click.echo(to_yaml(plain), nl=False)
    else:
        click.echo(json.dumps(plain, indent=2))


def print_json(value: object) -> None:
    """Print one JSON document, for commands without ``--output``."""
    print_document(value, OutputFormat.JSON)


def print_next(value: object, output: str) -> None:
    """Print one document of a stream: a line of JSON, or YAML after ``---``."""
    if output == OutputFormat.YAML:
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
    whole: Sequence[int] = (),
) -> list[str]:
    """Return the lines of a table, with aligned columns.

    Args:
        titles: titles of the columns.
        cells: cells of each row.
        width: maximum characters of a line; None for no limit. Columns that are too wide are
            truncated: those of ``minor`` first, and the first column, which identifies rows, last.
        minor: indexes of minor columns.
        whole: indexes of columns that are never truncated. If a line with them exceeds ``width``
            anyway, only minor columns are truncated: to cut names, too, would save nobody a line.

    """
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    if width is not None:
        room = width - len(_GAP) * (len(widths) - 1)
        rounds = [(minor, _NARROWEST)]
        if not whole or _least(widths, whole) <= room:
            others = (minor, range(1, len(widths)), range(1))
            rounds = [(numbers, least) for least in (_NARROWEST, 1) for numbers in others]
        for numbers, least in rounds:
            _cut(widths, [one for one in numbers if one not in whole], room, least)
    lines = [_line([title.upper() for title in titles], widths, color=False)]
    return lines + [_line(row, widths, color=True) for row in cells]


def _least(widths: Sequence[int], whole: Sequence[int]) -> int:
    """Return the characters of a line with the first column and ``whole`` ones untruncated."""
    return sum(
        size if number in whole or number == 0 else min(size, _NARROWEST)
        for number, size in enumerate(widths)
    )


def _cut(widths: list[int], numbers: Sequence[int], room: int, least: int) -> None:
    """Shrink the widest column of ``numbers`` until all fit into ``room``, or are ``least`` wide.

    All widths are in characters.
    """
    while numbers and sum(widths) > room:
        widest = max(numbers, key=lambda number: widths[number])
        if widths[widest] <= least:
            return
        widths[widest] -= 1


def age(since: datetime | None, now: datetime) -> str:
    """Return the time since ``since`` in two units; a dash if it is None."""
    return NOTHING if since is None else format_duration(now - since)


def confirm_or_abort(question: str, *, yes: bool) -> None:
    """Ask for confirmation of a destructive action; returns only if it is confirmed.

    Raises:
        click.UsageError: standard input is not a terminal, and ``--yes`` was not given.
        click.exceptions.Exit: the answer is no.

    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Standard input is not a terminal: confirm with --yes.")
    if not click.confirm(question, err=True):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(ExitCode.FAILED)


def echo_colored(text: str, color: str, rest: str = "") -> None:
    """Print a line whose first part has a color on a terminal."""
    click.echo(click.style(text, fg=color) + rest, color=_wants_color())


def is_terminal() -> bool:
    """Whether standard output is a terminal that can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _line(cells: Sequence[str], widths: Sequence[int], *, color: bool) -> str:
    parts = []
    for cell, width in zip(cells, widths, strict=True):
        text = cell if len(cell) <= width else cell[: width - 1] + "…"
        shown = _colored(text, cell) if color else text
        parts.append(shown + " " * (width - len(text)))
    return _GAP.join(parts).rstrip()


def printable(value: object) -> str:
    """Return text without control characters, which kernel logs or file names may contain."""
    text = NOTHING if value is None or value == "" else str(value)
    return "".join(char if char.isprintable() else "�" for char in text)


def format_size(count: float) -> str:
    """Return a number of bytes in the largest unit that leaves at least 1."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _colored(text: str, whole: str) -> str:
    """Return ``text``, which may be truncated, in the color of the state ``whole``."""
    color = "blue" if whole.endswith(PLANNED) else _COLOR_OF.get(whole.lower())
    return click.style(text, fg=color) if color else text


def _wants_color() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR")


def _terminal_width() -> int | None:
    if not sys.stdout.isatty():
        return None
    import shutil  # noqa: PLC0415 - only a terminal has a width

    return shutil.get_terminal_size().columns


def print_section(
    title: str, rows: Sequence[T], columns: Sequence[Column[T]], *, output: str
) -> None:
    """Print a table under a heading, unless it has no rows."""
    if rows:
        click.echo(f"\n{title}")
        print_rows(rows, columns, output=output, empty="")


def print_lines(title: str, lines: Sequence[tuple[str, str]]) -> None:
    """Print named lines, untruncated, under a heading, unless there are none."""
    if lines:
        click.echo(f"\n{title}")
        print_details(lines)
