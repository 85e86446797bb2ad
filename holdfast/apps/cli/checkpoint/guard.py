"""``holdfast checkpoint guard``: verifies checkpoints before a pod's command."""

import os
import shutil
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from holdfast.adapters.checkpoints.attempt_result import AttemptKey
from holdfast.adapters.slurm.jobs.attempts import attempt_in
from holdfast.apps.cli.checkpoint.options import DEEPER, depth_option, format_option
from holdfast.apps.cli.ending import ending_by_signal
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.parameters import Duration
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.launch.checkpoint_watch import is_watch_enabled, start_mirror, start_watch
from holdfast.apps.run.checkpoint_verification import (
    RANK_VARIABLES,
    AttemptVerification,
    rank_in,
    verify_for_all,
    wait_for_result,
)
from holdfast.apps.run.checkpoints import limits_in
from holdfast.apps.run.copy_restore import COPIES_VARIABLE
from holdfast.apps.run.resume_history import AwaitsDecision
from holdfast.decisions.notice_lines import checkpoint_line
from holdfast.decisions.set_aside_records import moved_line
from holdfast.decisions.termination_message import termination_message
from holdfast.model.checkpoints import Depth
from holdfast.model.errors import ConfigError
from holdfast.model.jobs import (
    BAD_LOSS_VARIABLE,
    CHECKPOINT_MIRROR_VARIABLE,
    CHECKPOINT_WATCH_VARIABLE,
    CHECKPOINTS_VARIABLE,
    RESTART_REASON_VARIABLE,
)
from holdfast.model.set_aside import SetAside

_TERMINATION_MESSAGE: Final = Path("/dev/termination-log")
"""File that the kubelet reads when a container ends, for the status of its pod."""


@examples(
    "holdfast checkpoint guard /fsx/llama/checkpoints -- python train.py",
    "holdfast checkpoint guard /fsx/llama/checkpoints --rank 0 --depth hashes",
)
@click.command("guard", context_settings={"ignore_unknown_options": True})
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@depth_option
@format_option
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    help=f"Rank of this pod; rank 0 verifies.  [default: {', '.join(RANK_VARIABLES)}]",
)
@click.option(
    "--attempt",
    type=click.IntRange(min=0),
    default=lambda: attempt_in(os.environ),
    help="Number of the attempt that begins.  [default: HOLDFAST_ATTEMPT]",
)
@click.option(
    "--job", default="", envvar="HOLDFAST_JOB", help="Identifier of the job, such as its UID."
)
@click.option(
    "--restore-from",
    metavar="LOCATION",
    default="",
    envvar=COPIES_VARIABLE,
    help="Location of `mirror`: restore its newest good copy if no good checkpoint is left.",
)
@click.option(
    "--mirror-to",
    metavar="LOCATION",
    default="",
    envvar=CHECKPOINT_MIRROR_VARIABLE,
    help="On rank 0, copy checkpoints to this location while COMMAND runs, as `mirror` does, and"
    " restore from it unless --restore-from names another.",
)
@click.option(
    "--timeout",
    type=Duration(),
    default="10m",
    show_default=True,
    help="Maximum time that other ranks wait for rank 0.",
)
def guard_(  # noqa: PLR0913 - one parameter for each option
    *,
    directory: Path,
    command: tuple[str, ...],
    depth: str,
    format_name: str | None,
    rank: int | None,
    attempt: int | None,
    job: str,
    restore_from: str,
    mirror_to: str,
    timeout: timedelta,
) -> int:
    """Verify the checkpoints in DIRECTORY at the start of a pod, then run COMMAND if given.

    Rank 0 does what `verify` does; the other ranks of the attempt wait for it. Then COMMAND
    replaces this process, with HOLDFAST_CHECKPOINT_DIR set to DIRECTORY; on rank 0, `watch` runs as
    its child, unless HOLDFAST_CHECKPOINT_WATCH is 0. COMMAND also starts if no
    checkpoint is complete, or if the directory cannot be read: the log has the reason. Ranks do not
    wait if neither --attempt nor --job is known.

    Exits with 1 if rank 0 does not finish in time, if a later attempt of the job has begun, if an
    operator must decide (HOLDFAST_CHECKPOINT_MAX_ROLLBACK, 24h by default), or if a copy is needed
    and cannot be restored.
    """
    rank = rank_in(os.environ) if rank is None else rank
    if rank is None:
        names = ", ".join(RANK_VARIABLES)
        raise ConfigError(f"rank of this pod unknown: none of {names} is set; use --rank")
    if command and shutil.which(command[0]) is None:
        raise ConfigError(f"COMMAND: {command[0]} not found; expected a program on PATH")
    is_known = bool(job) or attempt is not None
    number = 1 if attempt is None else attempt
    policy, wrong = limits_in(os.environ)
    verification = AttemptVerification(
        folder=directory,
        depth=Depth(depth),
        format_name=format_name,
        key=AttemptKey(job=job, attempt=number) if is_known else None,
        timeout=timeout,
        policy=policy,
        copies=restore_from or mirror_to,
        restart_reason=os.environ.get(RESTART_REASON_VARIABLE, ""),
        bad_loss=os.environ.get(BAD_LOSS_VARIABLE, ""),
    )
    with ending_by_signal():  # the kernel ignores signals to PID 1 of a container without a handler
        if rank != 0:
            wait_for_result(verification)
        elif not _verify(verification, wrong, is_init=not command):
            return ExitCode.FAILED
    if command:
        sys.stdout.flush()
        environment = _process_saves(str(directory.absolute()), mirror_to, is_first=rank == 0)
        os.execvpe(command[0], command, environment)  # noqa: S606 - an argument list
    return ExitCode.OK


def _verify(verification: AttemptVerification, wrong: list[str], *, is_init: bool) -> bool:
    """Verify the checkpoints and report it; returns whether the attempt may start."""
    try:
        lines, moved = verify_for_all(verification, DEEPER)
    except AwaitsDecision as error:
        _report_all([str(error)], (), is_init=is_init)
        return False
    _report_all([*wrong, *lines], moved, is_init=is_init)
    return True


def _process_saves(folder: str, mirror_to: str, *, is_first: bool) -> dict[str, str]:
    """Verify and copy saves in children of COMMAND; returns the environment of COMMAND."""
    environment = {**os.environ, CHECKPOINTS_VARIABLE: folder, CHECKPOINT_MIRROR_VARIABLE: ""}
    if is_watch_enabled(os.environ):
        environment[CHECKPOINT_WATCH_VARIABLE] = "0"
        if is_first:
            start_watch(folder, None)
    if mirror_to and is_first:
        start_mirror(folder, mirror_to, None)
    return environment


def _report_all(lines: list[str], moved: Sequence[SetAside], *, is_init: bool) -> None:
    """Print lines and records; those of an init container go to the status of its pod, too."""
    for line in lines:
        click.echo(checkpoint_line(line), err=True)
    for record in () if is_init else filter(None, map(moved_line, moved)):
        click.echo(record, err=True)
    if is_init and (lines or moved) and _TERMINATION_MESSAGE.is_file():
        _TERMINATION_MESSAGE.write_bytes(termination_message(lines, moved))
