"""Options and arguments that the commands of ``holdfast checkpoint`` share."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.pattern import USAGE
from holdfast.adapters.checkpoints.table import ROWS
from holdfast.decisions.loss_settings import parse_bad_loss
from holdfast.model.checkpoints import Depth
from holdfast.model.errors import HoldfastError

F = TypeVar("F", bound=Callable[..., Any])

DEEPER: Final = f"use --depth {Depth.HASHES}"
"""What a person does to have checksums compared."""


class BadLoss(click.ParamType[tuple[int, datetime]]):
    """Value of ``HOLDFAST_BAD_LOSS``."""

    name = "step@time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, datetime]:
        """See ``click.ParamType.convert``."""
        if isinstance(value, tuple):
            return value
        found = parse_bad_loss(str(value))
        if found is None:
            text = f"{str(value)[:60]!r}: expected STEP@TIME, such as 30@2026-01-01T12:00:00+00:00"
            self.fail(text, param, ctx)
        return found


def format_option(command: F) -> F:
    """Add the option ``--format``."""
    names = [row.name for row in ROWS]
    return click.option(
        "--format",
        "format_name",
        metavar="NAME",
        help=f"Checkpoint format: {', '.join(names)}, one that an installed package registers, or"
        f" {USAGE} for other programs; recognized by content if omitted.",
    )(command)


def exit_with_option(command: F) -> F:
    """Add the option ``--exit-with``."""
    return click.option(
        "--exit-with",
        type=click.IntRange(min=1),
        metavar="PID",
        help="Exit when this process, which must be the parent, has ended.",
    )(command)


def depth_option_of(default: Depth) -> Callable[[F], F]:
    """Return a decorator that adds the option ``--depth``."""
    return click.option(
        "--depth",
        type=click.Choice([depth.value for depth in Depth]),
        default=default.value,
        show_default=True,
        help="Compare names and sizes, or also checksums, which reads every byte.",
    )


depth_option = depth_option_of(Depth.SIZES)


def checkpoint_names(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the names of the checkpoints in DIRECTORY."""
    return _completed(
        ctx, incomplete, lambda store: [one.name for one in store.survey().checkpoints]
    )


def aside_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of the checkpoints that were set aside from DIRECTORY."""
    return _completed(ctx, incomplete, lambda store: list(store.set_aside()))


def _completed(
    ctx: click.Context, incomplete: str, names: Callable[[CheckpointDirectory], list[str]]
) -> list[CompletionItem]:
    directory = ctx.params.get("directory")
    if directory is None:
        return []
    try:
        found = names(CheckpointDirectory(Path(directory)))
    except HoldfastError:  # the command itself reports it
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]
