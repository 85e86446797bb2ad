"""``holdfast export``: ships what an agent says to where others look for it."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from holdfast.adapters.telemetry.log_follower import LogFollower
from holdfast.apps.cli.examples import examples
from holdfast.apps.cli.output import dry_run_option
from holdfast.apps.cli.whole_group import WholeGroup
from holdfast.apps.exit_codes import ExitCode
from holdfast.model.errors import BackendError, ConfigError

LOOK_S: Final = 1.0
"""Between two looks for new lines."""

FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 60.0
"""A pause between two tries doubles from the first to the last."""


@click.group(cls=WholeGroup)
def export() -> None:
    """Export agent events."""


@examples(
    "holdfast export cloudwatch --log agent.log --cluster ml --cluster-id abc123 "
    "--instance-group gpu --instance-id i-0592464924bd45322",
    "holdfast export cloudwatch --log agent.log --cluster ml --cluster-id abc123 "
    "--instance-group gpu --instance-id i-0592464924bd45322 --dry-run",
)
@export.command("cloudwatch")
@click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Log file that holdfast agent --json-log writes.",
)
@click.option("--cluster", required=True, help="Name of the HyperPod cluster.")
@click.option("--cluster-id", required=True, help="Cluster ID: the last part of the cluster's ARN.")
@click.option("--instance-group", required=True, help="Name of the instance group.")
@click.option("--instance-id", required=True, help="Instance ID, such as i-0592464924bd45322.")
@click.option("--region", help="AWS region.  [default: from the environment or the profile]")
@click.option("--endpoint-url", help="Endpoint URL of the AWS services.")
@click.option(
    "--metrics/--no-metrics", default=True, help="Publish metrics in addition to log lines."
)
@click.option("--once", is_flag=True, help="Export the lines that are in the log now and exit.")
@dry_run_option
@click.option(
    "--position",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that stores the position of the last exported line.  [default: next to the log]",
)
def cloudwatch(
    log: Path,
    position: Path | None,
    *,
    metrics: bool,
    once: bool,
    dry_run: bool,
    region: str | None,
    endpoint_url: str | None,
    **names: str,
) -> int:
    """Export an agent's log to CloudWatch.

    Lines go to the log group and stream that HyperPod's health monitoring agent uses. Each fault is
    a metric named after its reason: NeuronHasError_* in the namespace NeuronHealthCheck, all others
    in Holdfast/NodeHealth.

    Lines that CloudWatch rejects are retried until it accepts them; none is dropped. Requires
    boto3:  pip install 'holdfast[aws]'

    With --once, exits with 0 if CloudWatch accepted all lines, 1 otherwise.
    """
    if (once or dry_run) and not log.exists():
        raise ConfigError(f"there is no log {log}; holdfast agent --json-log {log} writes it")
    adapter = _adapter()
    instance = adapter.Instance(
        cluster=names["cluster"],
        cluster_id=names["cluster_id"],
        group=names["instance_group"],
        instance_id=names["instance_id"],
    )
    position_file = position or log.with_name(f".{log.name}.cloudwatch")
    if dry_run:
        with closing(LogFollower(log, position_file)) as follower:
            count = len(follower.read())
        click.echo(f"would ship {count} lines to {instance.log_group}, {instance.log_stream}")
        return ExitCode.OK
    target = adapter.CloudWatch(instance, region=region, endpoint_url=endpoint_url)
    shipments = [target.put_lines, *([target.put_metrics] if metrics else [])]
    with closing(LogFollower(log, position_file)) as follower:
        while True:
            lines = follower.read() if once else insist(follower.read)
            for ship in shipments if lines else []:
                _ship(ship, lines, once=once)
            if lines:
                follower.commit()
            elif once:
                return ExitCode.OK
            else:
                time.sleep(LOOK_S)


def _adapter() -> Any:
    try:
        return import_module("holdfast.adapters.telemetry.cloudwatch")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"this needs {error.name}, which is not installed; install it with: "
            "pip install 'holdfast[aws]'"
        ) from error


def _ship(ship: Callable[[Sequence[str]], None], lines: list[str], *, once: bool) -> None:
    if once:
        ship(lines)
    else:
        insist(lambda: ship(lines))


def insist(attempt: Callable[[], Any]) -> Any:
    """The outcome of ``attempt``, which is made until it succeeds."""
    pause = FIRST_PAUSE_S
    while True:
        try:
            return attempt()
        except BackendError as error:
            click.echo(f"holdfast: {error}; trying again in {pause:g} s", err=True)
            time.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_S)
