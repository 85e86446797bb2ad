"""``holdfast check pairs``: which node or link is bad, by tests of pairs."""

import shutil
from collections.abc import Sequence
from datetime import timedelta

import click

from holdfast.apps.cli.durations import Duration
from holdfast.apps.cli.output import Output, output_option, print_json
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.pair_tests import PairsResult, by_command, run_rounds
from holdfast.decisions.pairing import PairTest


@click.command()
@click.option("--nodes", required=True, help="Names, separated by commas; two or more.")
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    default=12,
    show_default=True,
    help="The most rounds; each tests every node once.",
)
@click.option(
    "--timeout",
    type=Duration(),
    default="10m",
    show_default=True,
    help="A test that takes longer has failed.",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 1000),
    default=32,
    show_default=True,
    help="Pairs that are tested at the same time.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@output_option(Output.TABLE, Output.JSON)
def pairs(
    *,
    nodes: str,
    rounds: int,
    timeout: timedelta,
    at_once: int,
    command: tuple[str, ...],
    output: str,
) -> int:
    r"""Find the bad node or link among many, also one that misbehaves half of the time.

    COMMAND tests two nodes, whose names are added as its last arguments, and ends with 0 if they
    are good together. Pairs of a round share no node and are tested at the same time.

    \b
      holdfast check pairs --nodes n1,n2,n3,n4 -- ./nccl-on-two-nodes.sh

    Twelve rounds of 64 nodes find 99 of 100 bad nodes that make half of their tests fail.

    Exits with 0 if nothing is bad, with 1 if something is, or the cause is common to all.
    """
    names = _names(nodes)
    if shutil.which(command[0]) is None:
        raise click.UsageError(f"cannot find {command[0]}, which is to test the pairs")
    ask = by_command(command, timeout)
    result = run_rounds(names, ask, rounds=rounds, at_once=at_once, told=_tell)
    if output == Output.JSON:
        print_json(_plain(result))
    else:
        click.echo("\n".join(_sentences(result)))
    found = result.found
    is_good = not (found.bad_nodes or found.bad_links or found.has_common_cause)
    return ExitCode.OK if is_good else ExitCode.FAILED


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise click.UsageError(f"--nodes {text!r}: expected two names or more, each once")
    return names


def _tell(number: int, tests: Sequence[PairTest]) -> None:
    failed = [" and ".join(test.nodes) for test in tests if not test.passed]
    what = f"failed: {', '.join(failed)}" if failed else "all passed"
    click.echo(f"round {number}: {len(tests)} pairs, {what}", err=True)


def _sentences(result: PairsResult) -> list[str]:
    found = result.found
    after = f"after {result.rounds} rounds"
    if found.has_common_cause:
        return [f"So much fails that no node can be blamed {after}: look at what all share."]
    bad = [f"{node} is bad ({found.nodes[node]:.1%} sure)" for node in found.bad_nodes]
    bad += [
        f"the link between {' and '.join(link)} is bad ({found.links[link]:.1%} sure)"
        for link in found.bad_links
    ]
    if found.is_settled:
        return bad or [f"No node or link is bad {after}."]
    suspects = sorted(found.nodes, key=lambda node: -found.nodes[node])[:4]
    doubts = ", ".join(
        f"{node} ({found.nodes[node]:.1%})" for node in suspects if node not in found.bad_nodes
    )
    return [*(bad or [f"No node or link can be blamed {after}."]), f"Most suspicious: {doubts}"]


def _plain(result: PairsResult) -> dict[str, object]:
    found = result.found
    return {
        "rounds": result.rounds,
        "bad_nodes": found.bad_nodes,
        "bad_links": found.bad_links,
        "has_common_cause": found.has_common_cause,
        "is_settled": found.is_settled,
        "nodes": found.nodes,
        "tests": result.tests,
    }
