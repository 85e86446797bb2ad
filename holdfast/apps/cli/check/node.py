"""``holdfast check node``: runs the deep health check on this node."""

import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import click

from holdfast.adapters.host.deep_checks.contract import Work
from holdfast.adapters.host.deep_checks.table import ROWS
from holdfast.adapters.telemetry.check_summary import summary_of, summary_text
from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.log import CheckLog
from holdfast.apps.checks.node import CheckPlan, Watcher, check_node, lay_out
from holdfast.apps.checks.stream import append_results
from holdfast.apps.cli.check.files import keep, refuse_unwritable, stream_option
from holdfast.apps.cli.check.progress import TimeLeft
from holdfast.apps.cli.ending import ending_by_signal
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import (
    LISTS,
    Column,
    is_document,
    output_option,
    print_document,
    print_rows,
)
from holdfast.apps.cli.parameters import Duration
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.kit.config import load_config
from holdfast.kit.serial import to_plain
from holdfast.kit.units import format_duration
from holdfast.model.deep_checks import KINDS_VARIABLE, RESULT_VARIABLE, Outcome
from holdfast.model.errors import BackendError, ConfigError
from holdfast.model.names import DeepCheck
from holdfast.model.node_checks import CheckSummary, Level, NodeCheck, PartResult

_SHORTEST: Final = timedelta(seconds=1)
_NAME: Final = click.Choice([row.name for row in ROWS])

COLUMNS: Final = (
    Column[PartResult](title="check", cell=lambda part: part.name),
    Column[PartResult](title="result", cell=lambda part: part.outcome),
    Column[PartResult](
        title="took",
        cell=lambda part: format_duration(timedelta(seconds=part.took_s)) if part.command else None,
    ),
    Column[PartResult](title="measured", cell=lambda part: _numbers(part.measured), minor=True),
    Column[PartResult](
        title="detail", cell=lambda part: part.detail.replace("\n", " "), minor=True
    ),
    Column[PartResult](title="command", cell=lambda part: shlex.join(part.command), wide=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Planned check, as ``--dry-run`` shows it."""

    check: str
    takes_s: float | None = None
    """Estimated duration in seconds; None if it is skipped."""

    command: tuple[str, ...] = ()
    skipped: str = ""
    """Why it is skipped; empty if it runs."""


_STEP_COLUMNS: Final = (
    Column[_Step](title="check", cell=lambda step: step.check),
    Column[_Step](
        title="duration",
        cell=lambda step: step.takes_s and format_duration(timedelta(seconds=step.takes_s)),
    ),
    Column[_Step](
        title="command",
        cell=lambda step: shlex.join(step.command) or f"skipped: {step.skipped}",
        minor=True,
    ),
)

result_option = click.option(
    "--result",
    "result_file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar=RESULT_VARIABLE,
    show_envvar=True,
    help="Write findings and measurements to this file as one line of JSON.",
)


@examples(
    "holdfast check node",
    "holdfast check node --level standard --skip memory",
    "holdfast check node --dry-run --output wide",
)
@click.command()
@click.option(
    "--level",
    type=click.Choice([level.value for level in Level]),
    default=Level.QUICK.value,
    show_default=True,
    help="quick: minutes, DCGM level 2; standard: up to an hour, level 3; long: level 4.",
)
@click.option(
    "--check",
    "kinds",
    type=click.Choice([kind.value for kind in DeepCheck]),
    multiple=True,
    envvar=KINDS_VARIABLE,
    show_envvar=True,
    help="Run the deep health checks with this SageMaker name; may be repeated.  [default: all]",
)
@click.option("--only", type=_NAME, multiple=True, help="Run only this check; may be repeated.")
@click.option("--skip", type=_NAME, multiple=True, help="Skip this check; may be repeated.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file with thresholds and expected devices.",
)
@click.option("--instance-type", help="Instance type, such as p5.48xlarge; detected on EC2.")
@click.option(
    "--stress-time",
    type=Duration(),
    help="Duration of each stress test of processors, memory and disk.  [default: by level]",
)
@click.option(
    "--strict", is_flag=True, help="Fail also if a check has no result or no check could run."
)
@click.option(
    "--log",
    "log_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append events to this file, in the format of HyperPod's deep health check log.",
)
@stream_option
@result_option
@click.option("--dry-run", is_flag=True, help="Print the checks that would run and exit.")
@output_option(*LISTS)
def node(  # noqa: PLR0913 - one parameter for each option
    *,
    level: str,
    kinds: tuple[str, ...],
    only: tuple[str, ...],
    skip: tuple[str, ...],
    config_file: Path | None,
    instance_type: str | None,
    stress_time: timedelta | None,
    strict: bool,
    log_file: Path | None,
    stream_file: Path | None,
    result_file: Path | None,
    dry_run: bool,
    output: str,
) -> int:
    """Check this node under load. No job should run on it.

    A check that was skipped (the device or the tool is missing), or whose tool hung or was killed,
    is reported and does not count against the node.

    Exits with 0 if no check failed, 1 if one failed, 2 for a usage error or if the node cannot be
    read.
    """
    if stress_time is not None and stress_time < _SHORTEST:
        raise click.UsageError("--stress-time must be at least 1s")
    config = _config(config_file, instance_type)
    names = _names(kinds, only, skip)
    try:
        check_plan = lay_out(config, Level(level), names=names, stress_time=stress_time)
    except BackendError as error:  # not begun: FAILED would be a result of the node
        raise ConfigError(str(error)) from error
    if dry_run:
        _show(check_plan, output)
        return ExitCode.OK
    refuse_unwritable(log=log_file, stream=stream_file)
    result = _run(check_plan, log_file)
    if stream_file is not None:
        now = SystemClock().now()
        keep("stream", stream_file, lambda: append_results(stream_file, [result], now))
    if result_file is not None:
        write_result(result_file, summary_of(result, summary(result)))
    print_result(result, output)
    is_good = result.outcome is Outcome.PASSED if strict else result.outcome is not Outcome.FAILED
    has_doubts = strict and any(part.outcome is Outcome.UNKNOWN for part in result.parts)
    return ExitCode.OK if is_good and not has_doubts else ExitCode.FAILED


def write_result(file: Path, result: CheckSummary) -> None:
    """Report the result of a check to the process that started it."""
    keep("result", file, lambda: file.write_text(f"{summary_text(result)}\n", encoding="utf-8"))


def print_result(result: NodeCheck, output: str) -> None:
    """Print a check as a table with a summary, or as a document."""
    if is_document(output):
        print_document({**to_plain(result), "outcome": result.outcome}, output)
    else:
        print_rows(result.parts, COLUMNS, output=output, empty="")
        click.echo(summary(result))


def summary(result: NodeCheck) -> str:
    """Return the last output line; a Kubernetes Job reports up to 2 KiB of it as its message."""
    by_outcome = {
        outcome: [part for part in result.parts if part.outcome is outcome] for outcome in Outcome
    }
    if failed := by_outcome[Outcome.FAILED]:
        return "failed: " + "; ".join(f"{part.name}: {part.detail[:200]}" for part in failed)
    counts = ", ".join(f"{len(parts)} {outcome}" for outcome, parts in by_outcome.items() if parts)
    if result.outcome is Outcome.PASSED:
        return f"passed: {counts}"
    return f"nothing was checked: {counts}; see the details for the reasons"


def _config(path: Path | None, instance_type: str | None) -> CheckConfig:
    config = load_config(path, CheckConfig) if path is not None else CheckConfig()
    try:
        return config if instance_type is None else replace(config, instance_type=instance_type)
    except ValueError as error:
        raise click.UsageError(
            str(error).replace("instance_type:", "--instance-type:", 1)
        ) from error


def _names(kinds: Collection[str], only: Collection[str], skip: Collection[str]) -> list[str]:
    names = [
        row.name
        for row in ROWS
        if (not kinds or row.kind in kinds)
        and (not only or row.name in only)
        and row.name not in skip
    ]
    if not names:
        raise click.UsageError("--check, --only and --skip leave no check to run")
    return names


def _numbers(measured: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in measured.items())


def _show(check_plan: CheckPlan, output: str) -> None:
    steps = [
        _Step(check=name, takes_s=plan.takes.total_seconds(), command=plan.argv)
        if isinstance(plan, Work)
        else _Step(check=name, skipped=plan.why)
        for name, plan in check_plan.steps
    ]
    print_rows(steps, _STEP_COLUMNS, output=output, empty="")


def _run(check_plan: CheckPlan, log_file: Path | None) -> NodeCheck:
    with ExitStack() as stack:
        watchers: list[Watcher] = []
        if log_file is not None:
            file = stack.enter_context(log_file.open("ab", buffering=0))
            watchers.append(CheckLog(file, partial(keep, "log", log_file)))
        if sys.stderr.isatty():
            watchers.append(stack.enter_context(TimeLeft()))
        stack.enter_context(ending_by_signal())
        return check_node(check_plan, _All(watchers), SystemClock())


class _All:
    """A ``Watcher`` that forwards to several."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = watchers

    def begun(self, name: str, plan: Work, left: timedelta) -> None:
        for watcher in self._watchers:
            watcher.begun(name, plan, left)

    def ended(self, result: PartResult) -> None:
        for watcher in self._watchers:
            watcher.ended(result)
