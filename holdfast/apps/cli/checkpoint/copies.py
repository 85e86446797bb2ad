"""``holdfast checkpoint mirror | restore``: copies of checkpoints in a second location."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.apps.cli.checkpoint.options import depth_option_of, exit_with_option, format_option
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import (
    LISTS,
    RESULTS,
    Column,
    age,
    dry_run_option,
    format_size,
    is_document,
    output_option,
    print_document,
    print_rows,
)
from holdfast.apps.cli.parameters import Duration, Size
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.run.copy_restore import mirror_of, trust_of
from holdfast.decisions.checkpoint_copies import RetentionPolicy, is_trusted, preferred
from holdfast.decisions.checkpoint_trust import Trust
from holdfast.engine.checkpoint_guard import guard
from holdfast.engine.checkpoint_mirror import MirrorRound
from holdfast.engine.checkpoint_wording import sentences
from holdfast.kit.processes import die_with_parent
from holdfast.kit.serial import to_plain
from holdfast.model.checkpoint_copies import CheckpointCopy
from holdfast.model.checkpoints import Depth
from holdfast.model.errors import BackendError, ConfigError

_DEEPER: Final = f"use holdfast checkpoint verify --depth {Depth.HASHES}"
_RETRY: Final = timedelta(seconds=30)

_NICE: Final = 10
"""Niceness of a mirror that was started for a job: the processes of the job come first."""


@examples(
    "holdfast checkpoint mirror /fsx/llama/checkpoints s3://backups/llama",
    "holdfast checkpoint mirror /fsx/llama/checkpoints /nfs/llama --once --keep 5",
)
@click.command("mirror")
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("location")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=RetentionPolicy().keep,
    show_default=True,
    help="Number of newest copies to keep.",
)
@click.option(
    "--max-age",
    type=Duration(),
    help="Also delete copies of older checkpoints, except the newest copy.",
)
@click.option("--bandwidth", type=Size(), help="Maximum bytes per second, such as 200M.")
@click.option("--once", is_flag=True, help="Copy the current checkpoints and exit.")
@click.option(
    "--interval",
    type=Duration(),
    default="30s",
    show_default=True,
    help="Time between two scans of DIRECTORY.",
)
@exit_with_option
@depth_option_of(Depth.HASHES)
@format_option
@dry_run_option
@output_option(*RESULTS)
def mirror(  # noqa: PLR0913 - one parameter for each option
    *,
    directory: Path,
    location: str,
    keep: int,
    max_age: timedelta | None,
    bandwidth: int | None,
    once: bool,
    interval: timedelta,
    exit_with: int | None,
    depth: str,
    format_name: str | None,
    dry_run: bool,
    output: str,
) -> int:
    """Keep verified copies of the newest checkpoints of DIRECTORY in LOCATION.

    LOCATION is a directory, s3://BUCKET/PREFIX, or another URL that fsspec supports. Only complete
    checkpoints are copied, each with a manifest that is written last. Run one mirror per location;
    it continues until it is interrupted.

    Exits with 1 if a checkpoint could not be copied, with --once.
    """
    if exit_with is not None:
        die_with_parent(exit_with)
        os.nice(_NICE)
    policy = RetentionPolicy(keep=keep, max_age=max_age)
    if not directory.is_dir():
        missing = f"{directory} does not exist; expected a directory of checkpoints"
        if once or dry_run:
            raise ConfigError(missing)
        click.echo(f"holdfast: {missing}; waiting for it", err=True)
    connected = mirror_of(directory, location, format_name, _throttle(bandwidth))
    if dry_run:
        names = [one.name for one in connected.plan(policy, trust_of(directory))]
        _print_plan(names, location, output)
        return ExitCode.OK

    def run_once() -> MirrorRound:
        return connected.run_once(policy, Depth(depth), trust_of(directory))

    if once:
        done = run_once()
        _print_round(done, location, output)
        return ExitCode.FAILED if done.skipped else ExitCode.OK
    _repeat(run_once, location, interval, output)
    return ExitCode.OK


@examples(
    "holdfast checkpoint restore s3://backups/llama /fsx/llama/checkpoints",
    "holdfast checkpoint restore s3://backups/llama /fsx/llama/checkpoints --name iter_0000200",
)
@click.command("restore")
@click.argument("location")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--name", help="Checkpoint to restore.  [default: the newest copy that is not suspected]"
)
@format_option
@dry_run_option
@output_option(*RESULTS)
def restore(
    *,
    location: str,
    directory: Path,
    name: str | None,
    format_name: str | None,
    dry_run: bool,
    output: str,
) -> int:
    """Restore a copy from LOCATION to DIRECTORY, and make the framework load it.

    Every file is compared with the SHA-256 of the manifest, and the checkpoint appears under its
    name when all files are restored. A damaged copy is skipped, and so is a suspected one unless
    --name selects it. An existing checkpoint is never replaced. Run it while no rank of the job is
    running.

    Exits with 1 if there is no usable copy.
    """
    connected = mirror_of(directory, location, format_name)
    trust = trust_of(directory)
    found = _candidates(connected.copies(), name, location, trust)
    if dry_run:
        _print_restored(found[0], directory, [], output, is_dry_run=True)
        return ExitCode.OK
    copy, damaged = connected.restore(found)
    trust = replace(trust, restored=copy.name)
    store = CheckpointDirectory(directory, format_name)
    result = guard(store, Depth.SIZES, quiet_since=None, trust=trust)
    _print_restored(
        copy, directory, [*damaged, *sentences(result, _DEEPER)], output, is_dry_run=False
    )
    return ExitCode.OK


def _candidates(
    copies: Sequence[CheckpointCopy], name: str | None, location: str, trust: Trust
) -> list[CheckpointCopy]:
    """Return the copies to try, in order: trusted ones, or those of the name.

    Raises:
        BackendError: there is none.

    """
    named = [copy for copy in preferred(copies, trust) if name in (None, copy.name)]
    if not named:
        suffix = f" of {name}" if name else ""
        raise BackendError(f"{location}: no usable copy{suffix}: none is complete")
    found = [copy for copy in named if name is not None or is_trusted(copy, trust)]
    if not found:
        names = ", ".join(dict.fromkeys(copy.name for copy in named))
        raise BackendError(
            f"{location}: no usable copy: {names} suspected; to restore one nevertheless, use"
            " --name"
        )
    return found


_COLUMNS: Final = (
    Column[CheckpointCopy](title="name", cell=lambda copy: copy.name),
    Column[CheckpointCopy](title="step", cell=lambda copy: copy.step),
    Column[CheckpointCopy](title="format", cell=lambda copy: copy.format),
    Column[CheckpointCopy](title="size", cell=lambda copy: format_size(copy.size)),
    Column[CheckpointCopy](title="files", cell=lambda copy: len(copy.files), wide=True),
    Column[CheckpointCopy](title="age", cell=lambda copy: age(copy.saved_at, datetime.now(UTC))),
)


@examples("holdfast checkpoint copies s3://backups/llama")
@click.command("copies")
@click.argument("location")
@output_option(*LISTS)
def copies(*, location: str, output: str) -> int:
    """List the complete copies in LOCATION, newest first."""
    found = mirror_of(Path(), location).copies()
    print_rows(found[::-1], _COLUMNS, output=output, empty=f"{location}: no complete copy")
    return ExitCode.OK


def _throttle(limit: int | None) -> Callable[[int], None]:
    """Return a function that waits so that no more than ``limit`` bytes pass in a second."""
    if limit is None:
        return lambda _: None
    free_at = time.monotonic()

    def wait(count: int) -> None:
        nonlocal free_at
        free_at = max(free_at, time.monotonic()) + count / limit
        time.sleep(max(0.0, free_at - time.monotonic()))

    return wait


def _repeat(
    run: Callable[[], MirrorRound], location: str, interval: timedelta, output: str
) -> None:
    reported: dict[str, str] = {}
    with suppress(KeyboardInterrupt):
        while True:
            pause = interval
            try:
                done = run()
            except BackendError as error:
                click.echo(f"holdfast: {error}; retrying in {_RETRY.seconds} s", err=True)
                pause = max(interval, _RETRY)
            else:
                updates = dict(done.skipped) != reported
                if done.copied or done.deleted or updates:
                    _print_round(done, location, output)
                    sys.stdout.flush()
                reported = dict(done.skipped)
            time.sleep(pause.total_seconds())


def _print_plan(names: list[str], location: str, output: str) -> None:
    if is_document(output):
        print_document({"location": location, "copy": names, "dry_run": True}, output)
        return
    for name in names:
        click.echo(f"would copy {name} to {location}, if it is complete")
    if not names:
        click.echo(f"{location}: nothing to copy")


def _print_round(done: MirrorRound, location: str, output: str) -> None:
    if is_document(output):
        document = {
            "location": location,
            "copied": [to_plain(copy) for copy in done.copied],
            "deleted": [copy.name for copy in done.deleted],
            "skipped": dict(done.skipped),
        }
        print_document(document, output)
        return
    for copy in done.copied:
        click.echo(f"{copy.name}: copied to {location}, {format_size(copy.size)}")
    for copy in done.deleted:
        click.echo(f"{copy.name}: copy deleted, beyond --keep or --max-age")
    for name, why in done.skipped:
        click.echo(f"{name}: not copied: {why}", err=True)
    if not (done.copied or done.deleted or done.skipped):
        click.echo(f"{location}: up to date")


def _print_restored(
    copy: CheckpointCopy, directory: Path, lines: list[str], output: str, *, is_dry_run: bool
) -> None:
    if is_document(output):
        document = {
            "directory": str(directory),
            "checkpoint": copy.name,
            "step": copy.step,
            "saved_at": to_plain(copy.saved_at),
            "messages": lines,
            "dry_run": is_dry_run,
        }
        print_document(document, output)
        return
    verb = "would restore" if is_dry_run else "restored"
    click.echo(f"{verb} {copy.name} to {directory}, {format_size(copy.size)}")
    for line in lines:
        click.echo(line)
