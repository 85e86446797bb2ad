"""``holdfast check replay``: finds nodes that compute wrongly, by the same steps on pairs."""

from datetime import timedelta
from typing import Any

import click

from holdfast.adapters.host.pairs.replay import NAME
from holdfast.apps.cli.check.files import stream_option
from holdfast.apps.cli.check.pair import config_option, token_option
from holdfast.apps.cli.check.pairs import (
    NOTHING_WRONG,
    STARTERS,
    PairsRequest,
    launch_option,
    nodes_option,
    run_pairs,
)
from holdfast.apps.cli.output import RESULTS, output_option
from holdfast.apps.cli.parameters import Duration
from holdfast.model.names import Condition


@click.command()
@nodes_option
@click.option(
    "--on",
    type=click.Choice(STARTERS),
    required=True,
    help="Launcher of the steps: srun, mpirun, or `holdfast check serve` on every node.",
)
@click.option(
    "--rounds",
    type=click.IntRange(2, 1000),
    default=4,
    show_default=True,
    help="Maximum number of rounds; each round runs the steps once on every node.",
)
@click.option(
    "--timeout",
    type=Duration(),
    default="15m",
    show_default=True,
    help="Time limit of the steps on a pair; a pair that exceeds it fails.",
)
@launch_option
@config_option
@token_option
@stream_option
@output_option(*RESULTS)
def replay(
    *, nodes: str, on: str, rounds: int, timeout: timedelta, output: str, **values: Any
) -> int:
    """Find nodes that compute wrongly without an error (silent data corruption).

    Both nodes of a pair run the same deterministic steps, and the results of each step are compared
    bit by bit. In the next round, the nodes of a pair whose results differ are paired with other
    nodes. The bad node is the one whose pairs keep differing.

    The steps train a built-in transformer block, with PyTorch on every GPU if it is installed. To
    run the steps of a job instead, set `replay_command` in the configuration of each node: the
    script must run the number of steps in HOLDFAST_REPLAY, and call holdfast.training.replayed
    after each.

    \b
      holdfast check replay --nodes n1,n2,n3,n4 --on slurm

    Exits with 0 if no node is bad, 1 if one is, if all pairs differ, or if no test had a result.
    """  # noqa: D301 - click keeps the lines after it
    request = PairsRequest(
        nodes=nodes,
        rounds=rounds,
        timeout=timeout,
        at_once=1000,  # the nodes compute, not this machine
        tests=(NAME,),
        on=on,
        options=values["options"],
        config_file=values["config_file"],
        token_file=values["token_file"],
        stream_file=values["stream_file"],
        condition=Condition.DEEP_CHECK,
        good=NOTHING_WRONG,
    )
    return run_pairs(request, output)
