"""``holdfast checkpoint watch``: verifies checkpoints in the background, after each save."""

import os
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from holdfast.adapters.checkpoints.manifests import DirectoryManifests, only_writer
from holdfast.adapters.checkpoints.save_reports import reports_size
from holdfast.adapters.host.progress_file import read_progress
from holdfast.apps.cli.address_parameter import Address
from holdfast.apps.cli.checkpoint.options import exit_with_option, format_option
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import (
    RESULTS,
    format_size,
    is_document,
    output_option,
    print_document,
)
from holdfast.apps.cli.parameters import Duration
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.listen_address import ListenAddress
from holdfast.apps.run.checkpoint_watch import SETTLE, describe, watch_of
from holdfast.apps.run.low_priority import lower_priority
from holdfast.apps.run.save_metrics import serve_metrics
from holdfast.engine.checkpoint_watch import CheckpointWatch, WatchRound
from holdfast.kit.processes import die_with_parent
from holdfast.model.checkpoint_manifests import CheckpointManifest
from holdfast.model.errors import BackendError, ConfigError

_PROGRESS_VARIABLE: Final = "HOLDFAST_PROGRESS_FILE"
_LISTEN_VARIABLE: Final = "HOLDFAST_CHECKPOINT_LISTEN"
"""Environment variable with the address of ``/metrics``, for watches that others start."""

_RETRY: Final = timedelta(seconds=30)

_REPORTS: Final = timedelta(milliseconds=500)
"""Interval at which the size of the file of reported saves is checked."""


@examples(
    "holdfast checkpoint watch /fsx/llama/checkpoints",
    "holdfast checkpoint watch /fsx/llama/checkpoints --once --cpu-limit 100",
)
@click.command("watch")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Verify existing checkpoints and exit.")
@click.option(
    "--interval",
    type=Duration(),
    default="5s",
    show_default=True,
    help="Time between two scans of DIRECTORY.",
)
@click.option(
    "--cpu-limit",
    type=click.IntRange(1, 100),
    default=25,
    show_default=True,
    help="Maximum CPU usage, in percent of one CPU.",
)
@exit_with_option
@click.option(
    "--listen",
    type=Address(),
    envvar=_LISTEN_VARIABLE,
    help=f"Address of /metrics. Steps at risk need HOLDFAST_PROGRESS_FILE.  [default:"
    f" {_LISTEN_VARIABLE}]",
)
@format_option
@output_option(*RESULTS)
def watch(
    *,
    directory: Path,
    once: bool,
    interval: timedelta,
    cpu_limit: int,
    exit_with: int | None,
    listen: ListenAddress | None,
    format_name: str | None,
    output: str,
) -> int:
    """Verify each checkpoint in DIRECTORY after its save, in the background.

    A save that the script reports with `holdfast.training.checkpoint_saved` is verified at once,
    and a warning is printed if it is still incomplete a minute later.
    All checksums of the newest three are compared, and their tensors are searched for NaN. The
    SHA-256 of every file is kept in a manifest beside DIRECTORY, in which nothing is changed.
    Before an attempt, `verify` and `guard` then compare sizes and a sample with the manifest,
    and skip a checkpoint that is damaged or contains NaN. The process runs at the lowest
    priority, and waits while another one watches DIRECTORY.

    Exits with 1 if a checkpoint is damaged or contains NaN, with --once.
    """
    if exit_with is not None:
        die_with_parent(exit_with)
    if once and not directory.is_dir():
        raise ConfigError(f"{directory} does not exist; expected a directory of checkpoints")
    lower_priority(cpu_limit / 100)
    connected = watch_of(directory, format_name)
    if once:
        is_good = True
        while (done := connected.run_once()).verified is not None:
            is_good &= _print_round(done, output)
        return ExitCode.OK if _print_round(done, output) and is_good else ExitCode.FAILED
    if listen is not None:
        progress = os.environ.get(_PROGRESS_VARIABLE, "")
        serve_metrics(
            listen,
            str(directory),
            DirectoryManifests(directory).read_summary,
            lambda: read_progress(Path(progress)).last if progress else None,
        )
    with suppress(KeyboardInterrupt), only_writer(directory):
        _repeat(connected, directory, interval, output)
    return ExitCode.OK


def _repeat(connected: CheckpointWatch, directory: Path, interval: timedelta, output: str) -> None:
    reported = ""
    while True:
        pause, reports = interval, reports_size(directory)
        try:
            done = connected.run_once()
        except BackendError as error:
            if str(error) != reported:
                click.echo(f"holdfast: {error}; retrying", err=True)
            reported, pause = str(error), max(interval, _RETRY)
        else:
            reported = ""
            _print_round(done, output)
            sys.stdout.flush()
            if done.verified is not None:
                continue
            if done.has_early:
                pause = min(interval, SETTLE)
        _pause(pause, directory, reports)


def _pause(limit: timedelta, directory: Path, reports: int) -> None:
    """Wait for the next report of a save, at most for a time."""
    end = time.monotonic() + limit.total_seconds()
    while reports_size(directory) == reports and (left := end - time.monotonic()) > 0:
        time.sleep(min(_REPORTS.total_seconds(), left))


def _print_round(done: WatchRound, output: str) -> bool:
    """Print what was found; returns whether all of it can be resumed from."""
    if done.verified is not None:
        _print_manifest(done.verified, output)
    for one in done.damaged:
        text = f"{one.name}: {one.state.value} since its verification: {'; '.join(one.problems)}"
        if is_document(output):
            print_document({"name": one.name, "state": one.state, "problems": one.problems}, output)
        else:
            click.echo(text, err=True)
    for save in done.incomplete:
        if is_document(output):
            print_document({"name": save.name, "state": "incomplete", "problem": save.text}, output)
        else:
            click.echo(f"warning: {save.text}", err=True)
    return not done.damaged and (done.verified is None or done.verified.is_good)


def _print_manifest(manifest: CheckpointManifest, output: str) -> None:
    if not is_document(output):
        click.echo(describe(manifest, format_size(manifest.size)), err=not manifest.is_good)
        return
    document = {
        "name": manifest.name,
        "step": manifest.step,
        "state": manifest.state,
        "problems": manifest.problems,
        "size": manifest.size,
        "scanned": manifest.weights.scanned,
        "nan": manifest.weights.nan,
        "infinite": manifest.weights.infinite,
        "seconds": manifest.seconds,
    }
    print_document(document, output)
