"""The pages of docs/reference/cli: one for each command, with its subcommands.

Rendered from click, and from argparse for the two processes that start without click.
"""

import argparse
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Final

import click

from holdfast.apps.cli.main import COMMANDS, cli
from holdfast.apps.main import LIGHT

NOTE: Final = "<!-- Written by `make docs` from the command itself; change it there. -->"
_HELP: Final = "--help"


def renderers() -> dict[str, Callable[[], Iterator[str]]]:
    """The function that renders each page, by the path of the page below docs/reference."""
    pages = {f"cli/{name}.md": partial(command_page, name) for name in COMMANDS}
    return {"cli/index.md": index_page, **pages}


def index_page() -> Iterator[str]:
    """All commands."""
    yield from ["# Commands", "", NOTE, ""]
    yield "Every command has `--help`. `--output json` prints all fields where a command"
    yield "offers it. [Exit codes](../exit-codes.md) are the same for all commands."
    yield from ["", "Placeholders in the options of several commands:", ""]
    yield "- `DURATION`: a number with a unit, such as `500ms`, `90s`, `15m`, `1h30m` or `7d`."
    yield "- `QUOTA`: a count such as `4`, or a percentage such as `20%`."
    yield "- `SIZE`: bytes, such as `500K`, `200M` or `1.5G`; units are powers of 1,024."
    yield "- `NODE,...` and similar: values separated by commas, without spaces."
    yield from ["", "| Command | Description |", "|---|---|"]
    for name, row in COMMANDS.items():
        yield f"| [`holdfast {name}`]({name}.md) | {row.help} |"


def command_page(name: str) -> Iterator[str]:
    """One command with all of its subcommands."""
    context = click.Context(cli, info_name="holdfast")
    command = cli.get_command(context, name)
    if command is None:
        raise LookupError(f"holdfast {name} is in COMMANDS and is not a command")
    yield from [f"# holdfast {name}", "", NOTE]
    yield from _command(command, click.Context(command, info_name=name, parent=context))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    path = context.command_path
    light = LIGHT.get(path.removeprefix("holdfast "))
    if light:
        yield from _process(import_module(light).command_line_parser())
        return
    yield from ["", *_text(command.help)]
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from ["", f"## holdfast {path.removeprefix('holdfast ')} {name}"]
                yield from _command(child, click.Context(child, info_name=name, parent=context))
        return
    yield from ["", "```text", command.get_usage(_wide(context)), "```"]
    records = [one.get_help_record(context) for one in command.get_params(context)]
    options = [one for one in records if one and one[1] and _HELP not in one[0]]
    if options:
        yield from ["", *_table([(name, _line(text)) for name, text in options])]
    if command.epilog:
        yield from ["", "```text", *_epilog(command.epilog), "```"]


def _wide(context: click.Context) -> click.Context:
    """The context with a terminal so wide that no usage line is broken."""
    context.terminal_width = 1000
    context.max_content_width = 1000
    return context


def _process(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from ["", *_text(parser.description)]
    shown = [one for one in parser._actions if one.help not in (None, argparse.SUPPRESS)]
    rows = []
    for action in shown:
        names = ", ".join(action.option_strings) or action.dest.upper()
        value = action.metavar or ("|".join(action.choices) if action.choices else "")
        takes_value = action.nargs != 0 and action.option_strings
        text = (action.help or "").replace("%%", "%") % {**vars(action)}
        rows.append((f"{names} {value}".strip() if takes_value else names, _line(text)))
    yield from ["", *_table([row for row in rows if _HELP not in row[0]])]
    if parser.epilog:
        yield from ["", "```text", parser.epilog.strip("\n"), "```"]


def _text(text: str | None) -> Iterator[str]:
    """The paragraphs of a help text; those that click must not rewrap are shown as they are."""
    for number, part in enumerate(re.split(r"\n\s*\n", inspect.cleandoc(text or ""))):
        yield from [""] if number else []
        if part.startswith("\b"):
            yield from ["```text", part.removeprefix("\b").strip("\n"), "```"]
        else:
            yield from part.splitlines()


def _epilog(text: str) -> list[str]:
    return text.replace("\b\n", "").strip("\n").splitlines()


def _table(rows: list[tuple[str, str]]) -> Iterator[str]:
    yield from ["| Option | Description |", "|---|---|"]
    for name, text in rows:
        shown = f"`{name}`".replace("|", "\\|")
        yield f"| {shown} | {text} |"


def _line(text: str) -> str:
    """A cell on one line, in which no letter means markup."""
    return re.sub(r"([|<>*\[\]])", r"\\\1", re.sub(r"\s+", " ", text)).strip()
