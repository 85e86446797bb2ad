"""Option ``--watch``: refreshes the output of a command."""

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
    """Add the option ``--watch`` of a list, for ``show``."""
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
    """Display a value once, or until Ctrl-C with ``watch``; returns the last value displayed.

    On a terminal the display is redrawn every second; elsewhere the value is printed again, after
    an empty line, whenever its ``essence`` has changed.
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
    """Wait until the next refresh.

    Raises:
        BrokenPipeError: the reader of standard output, such as ``head``, has exited.

    """
    reader = select.poll()
    reader.register(sys.stdout, 0)  # POLLERR and POLLHUP only, which poll always reports
    if reader.poll(_PAUSE_S * 1000):
        raise BrokenPipeError("the reader of standard output has exited")
