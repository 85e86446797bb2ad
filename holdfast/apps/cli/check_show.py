"""``holdfast check show``: the last deep health checks of nodes, and what they measured."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import click

from holdfast.apps.cli.known_names import node_names
from holdfast.apps.cli.output import (
    LISTS,
    Column,
    age,
    is_document,
    output_option,
    print_document,
    print_rows,
)
from holdfast.apps.cli.where import open_fleets, taken, where_options
from holdfast.apps.clock import SystemClock
from holdfast.apps.fleet import NodeStatus, find_node
from holdfast.detectors.thresholds import is_ceiling
from holdfast.model.nodes import CheckResult, Phase

_NAMED: Final = 4
_NONE = "No node was checked yet; ask for a check with: holdfast check deep NODE"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A check of a node; one that goes on has no result yet."""

    node: str
    result: CheckResult | None
    since: datetime


@click.command()
@click.argument("node", nargs=-1, shell_complete=node_names)
@where_options("Of this run, also if it has ended.")
@output_option(*LISTS)
def show(*, node: tuple[str, ...], output: str, **values: Any) -> None:
    """Show the last deep health check of each node, or all that are known of NODE...

    Ten are kept of each machine. Examples:

    \b
      holdfast check show --platform kubernetes
      holdfast check show gpu-17 --output json
    """  # noqa: D301 - click keeps the lines after it
    with open_fleets(taken(values), ended=True) as known:
        if node:
            found = [find_node(text, known) for text in node]
            shown = [
                one
                for fleet, name in found
                for status in fleet.nodes()
                if status.name == name
                for one in _checks(status)
            ]
        else:
            shown = [one for fleet in known for status in fleet.nodes() for one in _last(status)]
    if is_document(output):
        print_document(shown, output)
    else:
        _print(shown, output)


def _checks(status: NodeStatus) -> Iterator[_Check]:
    for one in status.checks:
        yield _Check(node=status.name, result=one, since=one.ended_at)
    if status.phase is Phase.CHECKING:
        yield _Check(node=status.name, result=None, since=status.phase_since)


def _last(status: NodeStatus) -> list[_Check]:
    return list(_checks(status))[-1:]


def _print(checks: Sequence[_Check], output: str) -> None:
    now = SystemClock().now()
    columns: list[Column[_Check]] = [
        Column(title="node", cell=lambda one: one.node),
        Column(title="result", cell=_result),
        Column(title="when", cell=lambda one: f"{age(one.since, now)} ago"),
        Column(title="measured", cell=_measured, minor=True),
        Column(title="with", cell=_partners, minor=True),
        Column(
            title="detail", cell=lambda one: one.result.detail if one.result else "", minor=True
        ),
    ]
    print_rows(checks, columns, output=output, empty=_NONE)


def _result(one: _Check) -> str:
    if one.result is None:
        return "in progress"
    return "passed" if one.result.passed else "failed"


def _measured(one: _Check) -> str:
    """What was measured, each beside its threshold if it has one."""
    if one.result is None:
        return ""
    bounds = {
        name: f" ({'≤' if is_ceiling(name) else '≥'} {bound:g})"
        for name, bound in one.result.bounds.items()
    }
    found = sorted(one.result.measured.items())
    return ", ".join(f"{name} {value:.4g}{bounds.get(name, '')}" for name, value in found)


def _partners(one: _Check) -> str:
    """The nodes that it was tested with; a large fleet has too many for a table."""
    names = one.result.partners if one.result else ()
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
