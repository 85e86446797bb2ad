"""``--watch``: a list that is shown again when it changes."""

import select
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from holdfast.apps.cli.output import is_terminal

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_PAUSE_S: Final = 1.0


def watch_option(command: F) -> F:
    """The option ``--watch`` of a list, for ``show``."""
    return click.option(
        "-w", "--watch", is_flag=True, help="Refresh the output until interrupted."
    )(command)


def show(
    read: Callable[[], T],
    display: Callable[[T], None],
    *,
    watch: bool,
    essence: Callable[[T], object] = lambda value: value,
) -> T:
    """Show something once, or until Ctrl-C; returns what was shown last.

    On a terminal it is painted anew every second; elsewhere it is printed, with an empty line
    before it, whenever ``essence`` of it has changed.
    """
    value = read()
    repaint = watch and is_terminal()
    if repaint:
        click.clear()
    display(value)
    while watch:
        _pause()
        last, value = value, read()
        if repaint:
            click.clear()
            display(value)
        elif essence(value) != essence(last):
            click.echo()
            display(value)
    return value


def _pause() -> None:
    """Wait for a moment.

    Raises:
        BrokenPipeError: nobody reads any more, such as ``head`` that has seen enough.

    """
    reader = select.poll()
    reader.register(sys.stdout, 0)  # no events but the end, which is always told
    if reader.poll(_PAUSE_S * 1000):
        raise BrokenPipeError("the reader of standard output is gone")
