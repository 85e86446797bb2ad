"""``holdfast check pair`` and ``holdfast check serve``: client and server of network tests."""

import os
import sys
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from holdfast.adapters.host.pairs.channel import PORT, SHORTEST_TOKEN
from holdfast.adapters.host.pairs.table import PARTS
from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.adapters.telemetry.check_summary import summary_of
from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.node import Watcher
from holdfast.apps.checks.pair import Other, check_pair
from holdfast.apps.checks.pair_runners import slurm_address, with_port
from holdfast.apps.checks.pair_server import PairServer, Unwatched
from holdfast.apps.cli.check.node import (
    print_result,
    result_option,
    summary,
    write_result,
)
from holdfast.apps.cli.check.progress import TimeLeft
from holdfast.apps.cli.ending import ending_by_signal
from holdfast.apps.cli.output import LISTS, output_option
from holdfast.apps.cli.parameters import Duration
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.listen_address import ListenAddress
from holdfast.kit.config import load_config
from holdfast.model.deep_checks import PEER_VARIABLE, TOKEN_VARIABLE, Outcome
from holdfast.model.errors import BackendError, ConfigError
from holdfast.model.node_checks import CheckSummary

RANKS: Final = {
    "slurm": "SLURM_PROCID",
    "mpi": "OMPI_COMM_WORLD_RANK",
    "kubernetes": "JOB_COMPLETION_INDEX",
}
"""``platform -> environment variable with the rank``: a task of srun, a rank of mpirun, or a pod of
an indexed Job."""

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file with thresholds, as for `holdfast check node`.",
)
token_option = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help=f"File with the token that both nodes share.  [default: the variable {TOKEN_VARIABLE}]",
)


@click.command()
@config_option
@token_option
@click.option(
    "--listen",
    default=f"127.0.0.1:{PORT}",
    show_default=True,
    metavar="[HOST:]PORT",
    help="Address and port to listen on; use an address that other nodes can reach, or :PORT for"
    " all.",
)
def serve(*, config_file: Path | None, token_file: Path | None, listen: str) -> int:
    """Serve network tests for other nodes until stopped.

    \b
      openssl rand -hex 32 > token     # once; the same file on all nodes
      holdfast check serve --token-file token --listen :20259
    """  # noqa: D301 - click keeps the lines after it
    address = _listen_address(listen)
    config, token = load(config_file), read_token(token_file)
    with closing(PairServer(config, address, token)) as server, ending_by_signal():
        click.echo(f"listening at port {server.port}", err=True)
        server.serve(lambda line: click.echo(line, err=True), is_over=lambda: False)
    return ExitCode.OK


@click.command()
@click.option(
    "--with",
    "peer",
    envvar=PEER_VARIABLE,
    show_envvar=True,
    metavar="HOST[:PORT]",
    help="Address of `holdfast check serve` on the other node.",
)
@click.option(
    "--only",
    type=click.Choice([part.name for part in PARTS]),
    multiple=True,
    help="Run only this test; may be repeated.  [default: all]",
)
@config_option
@token_option
@click.option(
    "--wait",
    type=Duration(),
    default="30s",
    show_default=True,
    help="Time to wait for the other node to accept the test.",
)
@click.option(
    "--rank-from",
    type=click.Choice(list(RANKS)),
    help="Run on both nodes and take the rank of this one from srun, mpirun or an indexed Job.",
)
@result_option
@output_option(*LISTS)
def pair(
    *,
    peer: str | None,
    only: tuple[str, ...],
    config_file: Path | None,
    token_file: Path | None,
    wait: timedelta,
    rank_from: str | None,
    result_file: Path | None,
    output: str,
) -> int:
    """Test the network between this node and another.

    With --rank-from, the same command runs on both nodes: rank 0 listens on the port of --with,
    and rank 1 connects and prints the result.

    \b
      srun -N2 -w n1,n2 holdfast check pair --rank-from slurm

    Exits with 0 if no test failed, 1 if one failed or the other node could not be reached.
    """  # noqa: D301 - click keeps the lines after it
    config, token = load(config_file), read_token(token_file)
    address = _peer(peer, rank_from)
    if rank_from is not None and _rank(rank_from) == 0:
        here = ListenAddress("", address.port)
        with closing(PairServer(config, here, token)) as server, ending_by_signal():
            server.serve_one(wait=wait)
        return ExitCode.OK
    names = only or [part.name for part in PARTS if part.by_default]
    with ExitStack() as stack:
        watcher: Watcher = stack.enter_context(TimeLeft()) if sys.stderr.isatty() else Unwatched()
        stack.enter_context(ending_by_signal())
        other = Other(address=address, token=token, wait=wait)
        try:
            result = check_pair(config, other, names, watcher, SystemClock())
        except BackendError as error:  # no fault of either node
            if result_file is not None:
                failed = CheckSummary(summary=str(error), outcome=Outcome.UNKNOWN)
                write_result(result_file, failed)
            raise
    if result_file is not None:
        write_result(result_file, summary_of(result, summary(result)))
    print_result(result, output)
    return ExitCode.FAILED if result.outcome is Outcome.FAILED else ExitCode.OK


def read_token(file: Path | None) -> str:
    """Return the token that both nodes share, from the file or from the environment.

    Raises:
        ConfigError: the token is missing or too short to be a secret.

    """
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    else:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"--token-file {file}: {error}") from error
    if len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"a token of {SHORTEST_TOKEN} characters or more is required, the same on both "
            f"nodes: openssl rand -hex 32 > FILE, then --token-file FILE or {TOKEN_VARIABLE}"
        )
    return token


def load(file: Path | None) -> CheckConfig:
    """Return the configuration in the file of ``--config``; the defaults without a file."""
    return load_config(file, CheckConfig) if file is not None else CheckConfig()


def _peer(peer: str | None, rank_from: str | None) -> ListenAddress:
    nodes = os.environ.get("SLURM_STEP_NODELIST", "")
    if peer is None and rank_from == "slurm" and nodes:
        peer = expand(nodes)[0]
        with suppress(BackendError):  # use the node name
            peer = slurm_address(peer)
    if peer is None:
        raise click.UsageError("--with is missing: the host on which holdfast check serve runs")
    return _address(peer)


def _address(text: str) -> ListenAddress:
    try:
        return with_port(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _listen_address(text: str) -> ListenAddress:
    try:
        return ListenAddress.parse(text) if text.isdecimal() else with_port(text)
    except ValueError as error:
        raise click.UsageError(f"--listen: {error}") from error


def _rank(platform: str) -> int:
    rank = os.environ.get(RANKS[platform], "")
    if rank not in ("0", "1"):
        raise click.UsageError(
            f"--rank-from {platform}: {RANKS[platform]} is {rank!r}, expected 0 or 1; "
            "run the command as two tasks, one on each node"
        )
    return int(rank)
