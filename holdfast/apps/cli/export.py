"""``holdfast export``: exports an agent's log to other systems."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from holdfast.adapters.host.identity import (
    RESOURCE_CONFIG,
    Identity,
    is_on_ec2,
    machine_identity,
)
from holdfast.adapters.host.instance_metadata import metadata_instance_id
from holdfast.adapters.telemetry.log_follower import LogFollower
from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.output import dry_run_option
from holdfast.apps.exit_codes import ExitCode
from holdfast.kit.backoff import Backoff
from holdfast.model.errors import BackendError, ConfigError

POLL_S: Final = 1.0
"""Seconds between two reads of the log."""

BACKOFF: Final = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=1))

_KNOWN: Final = "[default: read from the machine]"

_SOURCES: Final = {
    "cluster": "{file} is missing, unreadable or does not name the cluster",
    "cluster_id": "{file} is missing, unreadable or does not give the cluster's ARN",
    "instance_group": "{file} is missing, unreadable or does not list this instance",
    "instance_id": "neither the firmware nor EC2's metadata service gives it",
}
"""``option -> error message`` for each option that identifies an instance and has no default."""


@click.group(cls=FullHelpGroup)
def export() -> None:
    """Export agent events."""


@examples(
    "holdfast export cloudwatch --log agent.log",
    "holdfast export cloudwatch --log agent.log --no-lines",
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
@click.option("--cluster", help=f"Name of the HyperPod cluster.  {_KNOWN}")
@click.option("--cluster-id", help=f"Cluster ID: the last part of the cluster's ARN.  {_KNOWN}")
@click.option("--instance-group", help=f"Name of the instance group.  {_KNOWN}")
@click.option("--instance-id", help=f"Instance ID, such as i-0592464924bd45322.  {_KNOWN}")
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/"),
    help="Directory of the machine's /sys and /opt, such as /host in a container.  [default: /]",
)
@click.option("--region", help="AWS region.  [default: from the environment, else the cluster's]")
@click.option("--endpoint-url", help="Endpoint URL of the AWS services.")
@click.option("--lines/--no-lines", default=True, help="Export log lines.")
@click.option("--metrics/--no-metrics", default=True, help="Publish metrics.")
@click.option("--once", is_flag=True, help="Export the lines that are in the log now and exit.")
@dry_run_option
@click.option(
    "--position",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that stores the position of the last exported line.  [default: next to the log]",
)
def cloudwatch(
    log: Path,
    root: Path,
    position: Path | None,
    *,
    lines: bool,
    metrics: bool,
    once: bool,
    dry_run: bool,
    **given: str | None,
) -> int:
    """Export an agent's log to CloudWatch.

    Lines go to the log group and stream that HyperPod's health monitoring agent uses. Each fault is
    a metric named after its reason: NeuronHasError_* in the namespace NeuronHealthCheck, all others
    in Holdfast/NodeHealth.

    The cluster and the instance group are read from HyperPod's resource_config.json, the instance
    ID from the firmware or from the instance metadata service. Without a HyperPod cluster, use
    --no-lines to publish metrics only, or give the names.

    Lines that CloudWatch rejects are retried until it accepts them; none is dropped. Requires
    boto3:  pip install 'holdfast[aws]'

    With --once, exits with 0 if CloudWatch accepted all lines, 1 otherwise.
    """
    if not lines and not metrics:
        raise ConfigError("--no-lines and --no-metrics leave nothing to export; remove one of them")
    if (once or dry_run) and not log.exists():
        raise ConfigError(f"{log} does not exist; write it with: holdfast agent --json-log {log}")
    adapter = _adapter()
    known = machine_identity(root)
    instance = adapter.Instance(**_names(given, known, root, is_whole=lines))
    follower = LogFollower(log, position or log.with_name(f".{log.name}.cloudwatch"))
    if dry_run:
        with closing(follower):
            count = len(follower.read())
        place = f"{instance.log_group}, {instance.log_stream}" if lines else "metrics only"
        click.echo(f"would export {count} lines to {place}")
        return ExitCode.OK
    target = adapter.CloudWatch(
        instance,
        region=given["region"],
        usual_region=known.region or None,
        endpoint_url=given["endpoint_url"],
    )
    shipments = [
        *([target.put_lines] if lines else []), *([target.put_metrics] if metrics else [])
    ]  # fmt: skip
    with closing(follower):
        return _follow(follower, shipments, once=once)


def _follow(
    follower: LogFollower, shipments: Sequence[Callable[[Sequence[str]], None]], *, once: bool
) -> int:
    while True:
        lines = follower.read() if once else retry_until_success(follower.read)
        for ship in shipments if lines else []:
            _ship(ship, lines, once=once)
        if lines:
            follower.commit()
        elif once:
            return ExitCode.OK
        else:
            time.sleep(POLL_S)


def _names(
    given: Mapping[str, str | None], known: Identity, root: Path, *, is_whole: bool
) -> dict[str, str]:
    """Return the names of the instance, from the options or else from the machine.

    Args:
        given: ``option -> value``; None if the option is omitted.
        known: names from the machine's files.
        root: root directory of these files.
        is_whole: whether all names are required; metrics require the instance ID only.

    Raises:
        ConfigError: a required name is not known.

    """
    file = root / RESOURCE_CONFIG
    names = {name: given[name] or getattr(known, name) for name in _SOURCES}
    if not names["instance_id"] and is_on_ec2(root):
        names["instance_id"] = metadata_instance_id()
    needed = _SOURCES if is_whole else ("instance_id",)
    if missing := [name for name in needed if not names[name]]:
        raise ConfigError(
            f"--{name.replace('_', '-')}: {_SOURCES[name].format(file=file)}; give this option"
            + ("" if name == "instance_id" else ", or --no-lines to publish metrics only")
            for name in missing
        )
    return names


def _adapter() -> Any:
    try:
        return import_module("holdfast.adapters.telemetry.cloudwatch")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{error.name} is not installed; install it with: pip install 'holdfast[aws]'"
        ) from error


def _ship(ship: Callable[[Sequence[str]], None], lines: list[str], *, once: bool) -> None:
    if once:
        ship(lines)
    else:
        retry_until_success(lambda: ship(lines))


def retry_until_success(attempt: Callable[[], Any]) -> Any:
    """Call ``attempt`` until it raises no ``BackendError``; returns its result."""
    failures = 0
    while True:
        try:
            return attempt()
        except BackendError as error:
            failures += 1
            delay_s = BACKOFF.delay(failures).total_seconds()
            click.echo(f"holdfast: {error}; retrying in {delay_s:g} s", err=True)
            time.sleep(delay_s)
