"""``holdfast check show``: shows the last deep health checks of nodes and their measurements."""

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
from holdfast.apps.cli.where import taken, where_options
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import open_fleets
from holdfast.apps.views.nodes import NodeStatus, find_node
from holdfast.detectors.thresholds import is_ceiling
from holdfast.model.nodes import CheckResult, Pairing, Phase

_NAMED: Final = 4
_NONE = "No node has been checked yet; request a check with: holdfast check deep NODE"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tests:
    """Tests between a node and others, in a check in progress."""

    partner: str
    """Node of the current test; empty between two tests."""

    made: int
    failed: int
    partners: tuple[str, ...]
    """Nodes of previous tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """Check of a node; a check in progress has no result."""

    node: str
    result: CheckResult | None
    since: datetime
    instance_type: str = ""
    """Empty if not known."""

    tests: _Tests | None = None
    """None if the check has ended, or tests with other nodes have not started."""


@click.command()
@click.argument("node", nargs=-1, shell_complete=node_names)
@where_options("Show only this run, including ended runs.")
@output_option(*LISTS)
def show(*, node: tuple[str, ...], output: str, **values: Any) -> None:
    """Show the last deep health check of each node, or all recorded checks of NODE...

    The last ten checks of each machine are kept. Examples:

    \b
      holdfast check show --platform kubernetes
      holdfast check show gpu-17 --output json
    """  # noqa: D301 - click keeps the lines after it
    with open_fleets(taken(values), ended=True) as known:
        named = [find_node(text, known) for text in node]
        nodes = {fleet.name: fleet.nodes() for fleet in known}
    if node:
        shown = [
            one
            for fleet, name in named
            for status in nodes[fleet.name]
            if status.name == name
            for one in _checks(status, nodes[fleet.name])
        ]
    else:
        shown = [
            one for fleet in nodes.values() for status in fleet for one in _last(status, fleet)
        ]
    if is_document(output):
        print_document(shown, output)
    else:
        _print(shown, output)


def _checks(status: NodeStatus, fleet: Sequence[NodeStatus]) -> Iterator[_Check]:
    for one in status.checks:
        yield _Check(
            node=status.name, result=one, since=one.ended_at, instance_type=status.instance_type
        )
    if status.phase is Phase.CHECKING:
        yield _Check(
            node=status.name,
            result=None,
            since=status.phase_since,
            instance_type=status.instance_type,
            tests=_tests(status.name, status.pairing, fleet) if status.pairing else None,
        )


def _last(status: NodeStatus, fleet: Sequence[NodeStatus]) -> list[_Check]:
    return list(_checks(status, fleet))[-1:]


def _tests(node: str, own: Pairing, fleet: Sequence[NodeStatus]) -> _Tests:
    """Return the tests of a node, as recorded for either node of each pair."""
    now, made = own.partner, [(test.partner, test) for test in own.tests]
    for other in fleet:
        pairing = other.pairing
        if other.name == node or pairing is None:
            continue
        if pairing.partner == node:
            now = other.name
        made += [
            (other.name, test)
            for test in pairing.tests
            if test.partner == node and test.ended_at >= own.since
        ]
    return _Tests(
        partner=now,
        made=len(made),
        failed=sum(test.passed is False for _, test in made),
        partners=tuple(sorted({partner for partner, _ in made})),
    )


def _print(checks: Sequence[_Check], output: str) -> None:
    now = SystemClock().now()
    columns: list[Column[_Check]] = [
        Column(title="node", cell=lambda one: one.node),
        Column(title="result", cell=_result),
        Column(title="when", cell=lambda one: f"{age(one.since, now)} ago"),
        Column(title="measured", cell=_measured, minor=True),
        Column(title="with", cell=_partners, minor=True),
        Column(title="detail", cell=_detail, minor=True),
    ]
    print_rows(checks, columns, output=output, empty=_NONE)


def _result(one: _Check) -> str:
    if one.result is None:
        return "in progress"
    return str(one.result.outcome)


def _measured(one: _Check) -> str:
    """Return the measurements, each with its threshold if it has one."""
    if one.result is None:
        return ""
    bounds = {
        name: f" ({'≤' if is_ceiling(name) else '≥'} {bound:g})"
        for name, bound in one.result.bounds.items()
    }
    found = sorted(one.result.measured.items())
    return ", ".join(f"{name} {value:.4g}{bounds.get(name, '')}" for name, value in found)


def _partners(one: _Check) -> str:
    """Return the first nodes that it was tested with, and the number of the others."""
    if one.tests is not None and one.tests.partner:
        return f"{one.tests.partner} (now)"
    names = one.result.partners if one.result else one.tests.partners if one.tests else ()
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _detail(one: _Check) -> str:
    if one.result is not None:
        return one.result.remarks
    if one.tests is None:
        return "single-node checks in progress"
    return f"network tests in progress: {one.tests.made} done, {one.tests.failed} failed"
