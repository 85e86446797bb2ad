"""``holdfast check pairs``: finds bad nodes and links by testing pairs of nodes."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Final

import click

from holdfast.adapters.host.pairs.launched import LAUNCHED
from holdfast.adapters.host.pairs.table import PARTS
from holdfast.apps.checks.pair_runners import Launcher, PairTestOptions, Served, with_port
from holdfast.apps.checks.pair_tests import (
    Answers,
    Measure,
    PairsResult,
    by_command,
    node_checks,
    run_rounds,
)
from holdfast.apps.checks.stream import append_results
from holdfast.apps.cli.check.files import keep, refuse_unwritable, stream_option
from holdfast.apps.cli.check.pair import (
    config_option,
    load,
    read_token,
    token_option,
)
from holdfast.apps.cli.ending import ending_by_signal
from holdfast.apps.cli.output import RESULTS, is_document, output_option, print_document, printable
from holdfast.apps.cli.parameters import Duration
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.model.names import Condition
from holdfast.model.node_checks import NodeCheck

_SERVE: Final = "serve"
_SHORTEST: Final = timedelta(seconds=1)
NOTHING_WRONG: Final = "All nodes had the same results"
"""Result of ``holdfast check replay`` without a bad node."""

_NAMES: Final = (*(part.name for part in PARTS), *LAUNCHED)
STARTERS: Final = ("slurm", "mpi", _SERVE)

nodes_option = click.option(
    "--nodes",
    required=True,
    metavar="NODE,...",
    help="Comma-separated names of two or more nodes.",
)
launch_option = click.option(
    "--launch-option",
    "options",
    multiple=True,
    help="Additional option for srun or mpirun, such as --reservation=NAME; may be repeated.",
)


@click.command()
@nodes_option
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    default=12,
    show_default=True,
    help="Maximum number of rounds; each round tests every node once.",
)
@click.option(
    "--timeout",
    type=Duration(),
    default="10m",
    show_default=True,
    help="Time limit of a test; a test that exceeds it fails.",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 1000),
    default=32,
    show_default=True,
    help="Number of pairs to test at the same time.",
)
@click.option(
    "--test",
    "tests",
    type=click.Choice(_NAMES),
    multiple=True,
    help="Run this test on each pair instead of COMMAND; may be repeated.",
)
@click.option(
    "--on",
    type=click.Choice(STARTERS),
    help="Launcher of --test: srun, mpirun, or `holdfast check serve` on every node.",
)
@launch_option
@config_option
@token_option
@stream_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@output_option(*RESULTS)
def pairs(  # noqa: PLR0913 - one parameter for each option
    *,
    nodes: str,
    rounds: int,
    timeout: timedelta,
    at_once: int,
    tests: tuple[str, ...],
    on: str | None,
    options: tuple[str, ...],
    config_file: Path | None,
    token_file: Path | None,
    stream_file: Path | None,
    command: tuple[str, ...],
    output: str,
) -> int:
    """Find the bad node or link among many, including one that fails intermittently.

    Pairs are tested with --test, or with COMMAND: it gets two node names as its last arguments
    and exits with 0 if the pair is good. Pairs of a round share no node and are tested in
    parallel.

    \b
      holdfast check pairs --nodes n1,n2,n3,n4 --test nccl --on slurm \\
          --config check.toml
      holdfast check pairs --nodes n1,n2,n3,n4 -- ./nccl-on-two-nodes.sh

    Twelve rounds on 64 nodes find 99 of 100 bad nodes that fail half of their tests.

    Exits with 0 if no node or link is bad, 1 if one is, if all pairs fail, or if no test had a
    result.
    """  # noqa: D301 - click keeps the lines after it
    return run_pairs(
        PairsRequest(
            nodes=nodes,
            rounds=rounds,
            timeout=timeout,
            at_once=at_once,
            tests=tests,
            on=on,
            options=options,
            config_file=config_file,
            token_file=token_file,
            stream_file=stream_file,
            command=command,
        ),
        output,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsRequest:
    """What to test of which nodes, as options name it."""

    nodes: str
    rounds: int
    timeout: timedelta
    at_once: int
    tests: tuple[str, ...]
    on: str | None
    options: tuple[str, ...]
    config_file: Path | None
    token_file: Path | None
    stream_file: Path | None
    command: tuple[str, ...] = ()
    condition: Condition = Condition.NETWORK
    """Condition of a node that is found bad."""

    good: str = "No node or link is bad"
    """Text if nothing is found."""


def run_pairs(request: PairsRequest, output: str) -> int:
    """Test pairs of nodes until the bad one is known; print the result. Returns the exit code.

    Raises:
        click.UsageError: options do not fit.

    """
    names, config = _checked(request), load(request.config_file)
    over = Event()
    test_options = PairTestOptions(
        tests=request.tests,
        config=config,
        config_file=request.config_file,
        timeout=request.timeout,
        options=request.options,
        is_over=over.is_set,
    )
    run_test = _test_runner(test_options, request.command, request.on, request.token_file, names)
    stream_file = request.stream_file
    refuse_unwritable(stream=stream_file)
    clock = SystemClock()
    started_at = clock.now()
    with ending_by_signal():
        result = run_rounds(
            names,
            run_test,
            rounds=request.rounds,
            at_once=request.at_once,
            reported=_print_round,
            over=over,
        )
    now = clock.now()
    checks = node_checks(
        result,
        instance_type=config.instance_type or "",
        started_at=started_at,
        now=now,
        condition=request.condition,
    )
    if stream_file is not None:
        keep("stream", stream_file, lambda: append_results(stream_file, checks, now))
    return _shown(result, checks, request.good, output)


def _checked(request: PairsRequest) -> list[str]:
    """Return the names of the nodes.

    Raises:
        click.UsageError: options do not fit.

    """
    names = _names(request.nodes)
    has_tests = bool(request.tests)
    if has_tests == bool(request.command) or has_tests != (request.on is not None):
        raise click.UsageError("give a COMMAND, or --test and --on")
    if request.timeout < _SHORTEST:
        raise click.UsageError("--timeout must be at least 1s")
    return names


def _shown(result: PairsResult, checks: Sequence[NodeCheck], good: str, output: str) -> int:
    """Print a result. Returns the exit code."""
    if is_document(output):
        print_document(_plain(result, checks), output)
    else:
        click.echo("\n".join(_sentences(result, good)))
    found = result.found
    is_good = not (found.bad_nodes or found.bad_links or found.has_common_cause)
    return ExitCode.OK if is_good else ExitCode.FAILED


def _test_runner(
    test_options: PairTestOptions,
    command: tuple[str, ...],
    on: str | None,
    token_file: Path | None,
    names: Sequence[str],
) -> Measure:
    if on is None:
        if shutil.which(command[0]) is None:
            raise click.UsageError(f"{command[0]}: command not found")
        return by_command(command, test_options.timeout, test_options.is_over)
    if on != _SERVE:
        return Launcher(test_options, on)
    if launched := [name for name in test_options.tests if name in LAUNCHED]:
        raise click.UsageError(f"--test {launched[0]} needs --on slurm or --on mpi")
    try:
        for name in names:
            with_port(name)
    except ValueError as error:
        raise click.UsageError(f"--nodes: {error}") from error
    return Served(test_options, read_token(token_file))


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise click.UsageError(f"--nodes {text!r}: expected two names or more, each once")
    return names


def _print_round(number: int, answers: Answers) -> None:
    failed = [" and ".join(pair) for pair, answer in answers if answer.passed is False]
    silent = [pair for pair, answer in answers if answer.passed is None]
    what = f"failed: {', '.join(failed)}" if failed else "all passed"
    if silent:
        what = f"failed: {', '.join(failed) or 'none'}; without a result: {len(silent)}"
    pairs = f"{len(answers)} pair{'s' if len(answers) > 1 else ''}"
    click.echo(f"round {number}: {pairs}, {what}", err=True)
    for pair, answer in answers:
        if not answer.passed and answer.why:
            click.echo(f"  {' and '.join(pair)}: {printable(answer.why)}", err=True)


def _sentences(result: PairsResult, good: str) -> list[str]:
    found = result.found
    after = f"after {result.rounds} rounds"
    if found.has_common_cause:
        return [f"Too many pairs failed to single out a node {after}: check what all nodes share."]
    bad = [f"{node} is bad (probability {found.nodes[node]:.1%})" for node in found.bad_nodes]
    bad += [
        f"the link between {' and '.join(link)} is bad (probability {found.links[link]:.1%})"
        for link in found.bad_links
    ]
    if found.is_settled:
        return bad or [f"{good} {after}."]
    suspects = sorted(found.nodes, key=lambda node: -found.nodes[node])[:4]
    doubts = ", ".join(
        f"{node} ({found.nodes[node]:.1%})" for node in suspects if node not in found.bad_nodes
    )
    return [
        *(bad or [f"No node or link can be identified as bad {after}."]),
        f"Most likely bad: {doubts}",
    ]


def _plain(result: PairsResult, checks: Sequence[NodeCheck]) -> dict[str, object]:
    found = result.found
    return {
        "rounds": result.rounds,
        "bad_nodes": found.bad_nodes,
        "bad_links": found.bad_links,
        "has_common_cause": found.has_common_cause,
        "is_settled": found.is_settled,
        "nodes": found.nodes,
        "tests": result.tests,
        "answers": [{"nodes": pair, "answer": answer} for pair, answer in result.answers],
        "checks": checks,
    }
