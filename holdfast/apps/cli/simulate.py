"""``holdfast simulate``: simulates faults and repairs on a cluster."""

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from holdfast.apps.cli.output import (
    RESULTS,
    format_table,
    is_document,
    output_option,
    print_details,
    print_document,
)
from holdfast.apps.cli.parameters import Duration, Number
from holdfast.apps.simulate.simulation import PARTS, SimulationConfig, Trial, TrialResult, run_trial
from holdfast.kit.config import load_config
from holdfast.kit.quota import Quota
from holdfast.kit.units import format_duration

_EPILOG = """\b
Examples:
  holdfast simulate
  holdfast simulate --nodes 128 --job-nodes 128 --spares 2 \\
    --checkpoint-every 15m
  holdfast simulate --nodes 2048 --days 7 --lemons --max-unavailable 5%
  holdfast simulate --config policy.toml --output json

The decisions and the engine are those that run real clusters; machines and time are simulated.
Faults occur independently and at a constant rate, in the mix of Llama 3's pre-training; its rate
was 3.79 per 1,000 node-days, and published rates are between 1 and 24. ETTR is the share of time
with progress that was not lost. The value of Daly's formula beside it ignores waits for nodes.
"""

_LONGEST: Final = timedelta(days=30)


class _Bounded(Duration):
    """Duration from ``least`` to 30 days."""

    def __init__(self, least: timedelta) -> None:
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """See ``click.ParamType.convert``."""
        duration = super().convert(value, param, ctx)
        if not self._least <= duration <= _LONGEST:
            least, longest = format_duration(self._least), format_duration(_LONGEST)
            self.fail(f"{value!r} is not a duration from {least} to {longest}", param, ctx)
        return duration


class _QuotaType(click.ParamType[Quota]):
    """Quota: a count or a percentage."""

    name = "quota"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Quota:
        """See ``click.ParamType.convert``."""
        if isinstance(value, Quota):
            return value
        try:
            return Quota.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_ANY: Final = _Bounded(timedelta(0))
_SOME: Final = _Bounded(timedelta(seconds=1))


@click.command("simulate", epilog=_EPILOG)
@click.option(
    "--nodes",
    type=click.IntRange(1, 100_000),
    default=128,
    show_default=True,
    help="Number of nodes.",
)
@click.option(
    "--spares",
    type=click.IntRange(0, 100_000),
    default=0,
    show_default=True,
    help="Number of spare nodes.",
)
@click.option(
    "--job-nodes",
    type=click.IntRange(1, 200_000),
    help="Number of nodes of the job.  [default: the value of --nodes]",
)
@click.option(
    "--days",
    type=Number(0, 3650, min_open=True),
    default=30.0,
    show_default=True,
    help="Days to simulate.",
)
@click.option(
    "--faults-per-1000-node-days",
    "faults",
    type=Number(0, 100_000),
    default=3.79,
    show_default=True,
    help="Faults of all kinds per 1,000 node-days.",
)
@click.option(
    "--lemons", is_flag=True, help="Concentrate most faults on a few nodes, as in real fleets."
)
@click.option(
    "--reboot-time", type=_ANY, default="3m", show_default=True, help="Duration of a reboot."
)
@click.option(
    "--replace-time",
    type=_ANY,
    default="25m",
    show_default=True,
    help="Time from the replacement order to the first heartbeat of the new node.",
)
@click.option(
    "--restart-time",
    type=_ANY,
    default="5m",
    show_default=True,
    help="Time from the launch of the job to its first step.",
)
@click.option(
    "--checkpoint-every",
    type=_SOME,
    default="30m",
    show_default=True,
    help="Training time between two checkpoints.",
)
@click.option(
    "--checkpoint-time",
    type=_ANY,
    default="30s",
    show_default=True,
    help="Time that a checkpoint blocks training.",
)
@click.option(
    "--max-unavailable",
    type=_QuotaType(),
    help="Maximum nodes under repair at once, as a count or a percentage.  [default: 20%]",
)
@click.option(
    "--max-retries",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Maximum restarts of the job.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file with the tables [nodes] and [jobs].",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random faults.")
@output_option(*RESULTS)
def simulate(  # noqa: PLR0913 - one parameter for each option
    *,
    nodes: int,
    spares: int,
    job_nodes: int | None,
    days: float,
    faults: float,
    lemons: bool,
    reboot_time: timedelta,
    replace_time: timedelta,
    restart_time: timedelta,
    checkpoint_every: timedelta,
    checkpoint_time: timedelta,
    max_unavailable: Quota | None,
    max_retries: int,
    config_file: Path | None,
    seed: int,
    output: str,
) -> None:
    """Simulate faults, repairs and restarts on a cluster, to size a fleet and its policy.

    Thirty days of 128 nodes take a few seconds. The same options and seed give the same result.
    """
    trial = Trial(
        nodes=nodes + spares,
        job_nodes=job_nodes or nodes,
        days=days,
        faults_per_1000_node_days=faults,
        has_lemons=lemons,
        reboot_time=reboot_time,
        replace_time=replace_time,
        restart_time=restart_time,
        checkpoint_every=checkpoint_every,
        checkpoint_time=checkpoint_time,
        max_retries=max_retries,
        seed=seed,
        config=_config(config_file, max_unavailable),
    )
    result = _simulate(trial)
    if is_document(output):
        print_document(result, output)
    else:
        _print_result(result)


def _config(path: Path | None, max_unavailable: Quota | None) -> SimulationConfig:
    config = load_config(path, SimulationConfig) if path is not None else SimulationConfig()
    if max_unavailable is None:
        return config
    return replace(config, nodes=replace(config.nodes, max_unavailable=max_unavailable))


def _simulate(trial: Trial) -> TrialResult:
    if not sys.stderr.isatty():
        return run_trial(trial, lambda _: None)
    with click.progressbar(length=PARTS, label="simulating", file=sys.stderr) as bar:
        return run_trial(trial, bar.update)


def _print_result(result: TrialResult) -> None:
    trial = result.trial
    print_details(
        [
            (
                "Simulated",
                f"{trial.days:g} days, a job on {trial.job_nodes} of {trial.nodes} nodes",
            ),
            ("Job", f"{result.job_phase} {result.job_reason}".strip()),
            ("ETTR", f"{result.ettr:.2%}"),
            (
                "ETTR by closed form",
                f"{result.closed_form_ettr:.2%} (Daly; assumes that nodes are always available)",
            ),
            (
                "Recommended spares",
                f"{result.spares_advised}, with which {trial.job_nodes} nodes are available 99% "
                f"of the time; simulated with {trial.nodes - trial.job_nodes}",
            ),
            ("Time to failure", _duration(result.mean_time_to_failure_s)),
            ("Restarts", _counts(result.restarts)),
            ("Waited", _duration(result.waited_s)),
            ("Incidents", _counts(result.incidents)),
            (
                "Nodes replaced",
                f"{result.nodes_replaced}, {result.repeat_offenders} repeat offenders",
            ),
            ("Breaker trips", result.breaker_trips),
        ]
    )
    if result.repairs:
        click.echo()
        cells = [
            [one.remedy, str(one.count), *map(_duration, (one.p50_s, one.p90_s, one.p99_s))]
            for one in result.repairs
        ]
        titles = ["time to repair", "count", "p50", "p90", "p99"]
        click.echo("\n".join(format_table(titles, cells, width=None)))


def _counts(counts: dict[str, int]) -> str:
    parts = [f"{count} {name}" for name, count in sorted(counts.items())]
    return ", ".join(parts) or "none"


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(timedelta(seconds=seconds))
