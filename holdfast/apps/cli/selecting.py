"""Options of lists that select and order rows: ``--state``, ``--since``, ``--sort-by``, ``-l``."""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click

from holdfast.apps.cli.parameters import Duration
from holdfast.apps.views.selection import Selection

F = TypeVar("F", bound=Callable[..., Any])

_ORDERS = ("since", "reason", "state")


class _States(click.ParamType[frozenset[str]]):
    """Comma-separated states."""

    name = "state,..."

    def __init__(self, known: Collection[str]) -> None:
        self._known = known

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        """See ``click.ParamType.convert``."""
        states = frozenset(str(value).split(","))
        for one in sorted(states - frozenset(self._known)):
            self.fail(f"{one!r} is not one of {', '.join(self._known)}", param, ctx)
        return states


class _Labels(click.ParamType[dict[str, str]]):
    """Comma-separated ``key=value``."""

    name = "key=value,..."

    def __init__(self, known: Collection[str]) -> None:
        self._known = known

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, str]:
        """See ``click.ParamType.convert``."""
        labels: dict[str, str] = {}
        for part in str(value).split(","):
            key, equals, label = part.partition("=")
            if not equals or key not in self._known:
                expected = ", ".join(f"{one}=VALUE" for one in self._known)
                self.fail(f"{part!r} is not one of {expected}", param, ctx)
            labels[key] = label
        return labels


def select_options(
    states: Collection[str],
    labels: Collection[str],
    *,
    has_reasons: bool = True,
    has_jobs: bool = True,
) -> Callable[[F], F]:
    """Add the options of a list; ``taken_selection`` reads them into a ``Selection``.

    Args:
        states: states that ``--state`` accepts.
        labels: keys that ``--selector`` and ``--sort-by`` accept.
        has_reasons: whether rows have a reason.
        has_jobs: whether rows concern jobs.

    """
    reason = click.option("--reason", default="", help="Show only reasons that contain this text.")
    job = click.option("--job", "of_job", default="", help="Show only rows of this job.")
    orders = [one for one in _ORDERS if has_reasons or one != "reason"]
    options = (
        click.option(
            "--state",
            type=_States(states),
            help=f"Show only rows in these states: {', '.join(states)}.",
        ),
        click.option(
            "--since",
            type=Duration(),
            help="Show only rows that changed within this time, such as 30m or 2h.",
        ),
        *([reason] if has_reasons else []),
        *([job] if has_jobs else []),
        click.option(
            "-l",
            "--selector",
            type=_Labels(labels),
            help=f"Show only rows with these labels: {', '.join(labels)}.",
        ),
        click.option("--sort-by", type=click.Choice([*orders, *labels]), help="Order of the rows."),
        click.option("--no-headers", is_flag=True, help="Omit the column headers."),
    )

    def decorate(function: F) -> F:
        decorated: Any = function
        for option in reversed(options):
            decorated = option(decorated)
        found: F = decorated
        return found

    return decorate


def taken_selection(values: dict[str, Any]) -> Selection:
    """Remove the selecting options from ``values`` and return them."""
    return Selection(
        states=values.pop("state") or frozenset(),
        since=values.pop("since"),
        reason=values.pop("reason", ""),
        job=values.pop("of_job", ""),
        labels=values.pop("selector") or {},
        sort_by=values.pop("sort_by") or "",
    )
