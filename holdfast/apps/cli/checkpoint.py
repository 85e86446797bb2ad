"""``holdfast checkpoint``: verifies and lists the checkpoints of a job."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from holdfast.adapters.checkpoints.attempt_claim import claim
from holdfast.adapters.checkpoints.attempt_result import AttemptKey
from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.history import read_history
from holdfast.adapters.checkpoints.manifest_check import SAMPLE
from holdfast.adapters.slurm.jobs.attempts import attempt_in, job_in
from holdfast.apps.cli.checkpoint_copies import copies, mirror, restore
from holdfast.apps.cli.checkpoint_options import depth_option, format_option
from holdfast.apps.cli.checkpoint_selection import choose_, release, show_checkpoint
from holdfast.apps.cli.checkpoint_watch import watch as watch_checkpoints
from holdfast.apps.cli.help import FullHelpGroup, examples
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
from holdfast.apps.cli.parameters import Duration
from holdfast.apps.cli.watch import show, watch_option
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.run.checkpoint_verification import (
    QUIET,
    RANK_VARIABLES,
    AttemptVerification,
    rank_in,
    verify_for_all,
    wait_for_result,
)
from holdfast.apps.run.checkpoints import ROLLBACK_VARIABLE, limits_in
from holdfast.apps.run.copy_restore import COPIES_VARIABLE
from holdfast.apps.run.resume_history import (
    AwaitsDecision,
    Verification,
    preview,
    verify_and_record,
)
from holdfast.decisions.checkpoint_choice import ResumeOutcome, choose
from holdfast.decisions.checkpoint_trust import CheckpointPolicy, Trust
from holdfast.engine.checkpoint_guard import GuardResult, verify_all
from holdfast.engine.checkpoint_wording import sentences
from holdfast.kit.units import format_duration
from holdfast.model.checkpoints import Checkpoint, Depth, Survey
from holdfast.model.errors import ConfigError
from holdfast.model.jobs import RESTART_REASON_VARIABLE

F = TypeVar("F", bound=Callable[..., Any])

_TERMINATION_MESSAGE: Final = Path("/dev/termination-log")
"""File that the kubelet reads when a container ends, for the status of its pod."""

_MESSAGE_LIMIT: Final = 4096
"""Maximum length in bytes of a termination message."""

_DEEPER: Final = f"use --depth {Depth.HASHES}"

_CODES: Final = {
    ResumeOutcome.MISSING: ExitCode.OK,
    ResumeOutcome.EMPTY: ExitCode.OK,
    ResumeOutcome.RESUME: ExitCode.OK,
    ResumeOutcome.START_OVER: ExitCode.STARTS_OVER,
}


def _rollback_option(command: F) -> F:
    return click.option(
        "--max-rollback",
        type=Duration(),
        envvar=ROLLBACK_VARIABLE,
        default=format_duration(CheckpointPolicy().max_rollback),
        show_default=True,
        help="Maximum age difference between the newest checkpoint and the one to resume from;"
        " beyond it, a person decides. 0s means no limit.",
    )(command)


@click.group(cls=FullHelpGroup)
def checkpoint() -> None:
    """Verify checkpoints before a job resumes from them, and select the one to resume from."""


checkpoint.add_command(show_checkpoint)
checkpoint.add_command(choose_)
checkpoint.add_command(release)
checkpoint.add_command(watch_checkpoints)
checkpoint.add_command(mirror)
checkpoint.add_command(restore)
checkpoint.add_command(copies)


@examples(
    "holdfast checkpoint verify /fsx/llama/checkpoints",
    "holdfast checkpoint verify /fsx/llama/checkpoints --depth hashes --dry-run",
)
@checkpoint.command("verify")
@click.argument("directory", type=click.Path(path_type=Path))
@depth_option
@format_option
@dry_run_option
@click.option(
    "--job-stopped",
    is_flag=True,
    help="Also act on a checkpoint that changed within the last minute: no rank is running.",
)
@_rollback_option
@click.option(
    "--attempt",
    type=click.IntRange(min=0),
    default=lambda: attempt_in(os.environ),
    help="Number of the attempt that begins; fails if a later one has begun.",
)
@output_option(*RESULTS)
def verify(
    *,
    directory: Path,
    depth: str,
    format_name: str | None,
    dry_run: bool,
    job_stopped: bool,
    max_rollback: timedelta,
    attempt: int | None,
    output: str,
) -> int:
    """Find the newest complete checkpoint in DIRECTORY and make the framework load it.

    A tracker or link is set to that checkpoint, and newer ones that are incomplete or damaged are
    moved to DIRECTORY.set-aside. Nothing is deleted. Run it while no rank of the job is running.

    Exits with 0 if a complete checkpoint will be loaded or no checkpoint exists yet, with 4 if the
    only checkpoint is an interrupted first save, and with 1 if an operator must decide.
    """
    policy = CheckpointPolicy(max_rollback=max_rollback)
    store = CheckpointDirectory(directory, format_name, sample=SAMPLE)
    if attempt is not None and not dry_run and directory.is_dir():
        store.survey()
        claim(directory, attempt, job_in(os.environ), may_be_inside=store.accepts_files)
    is_stopped = job_stopped or attempt is not None or bool(job_in(os.environ))
    quiet_since = None if is_stopped else datetime.now(UTC) - QUIET
    how = Verification(depth=Depth(depth), quiet_since=quiet_since, policy=policy)
    found, more = (
        (preview(store, directory, how), [])
        if dry_run
        else verify_and_record(store, directory, how)
    )
    code = _CODES.get(found.choice.outcome, ExitCode.FAILED)
    if is_document(output):
        print_document(_document(found, is_dry_run=dry_run), output)
    else:
        for line in [*sentences(found, _DEEPER), *more]:
            click.echo(line, err=code is ExitCode.FAILED)
    return code


@examples(
    "holdfast checkpoint guard /fsx/llama/checkpoints -- python train.py",
    "holdfast checkpoint guard /fsx/llama/checkpoints --rank 0 --depth hashes",
)
@checkpoint.command("guard", context_settings={"ignore_unknown_options": True})
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
    help="Location of ``mirror``: restore its newest copy if no good checkpoint is left.",
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
    timeout: timedelta,
) -> int:
    """Verify the checkpoints in DIRECTORY before a pod's COMMAND; without one, as init container.

    Rank 0 does what ``verify`` does; the other ranks of the attempt wait for it. Then COMMAND
    replaces this process. It also starts if no checkpoint is complete, or if the directory cannot
    be read: the log has the reason. Ranks do not wait if neither the number nor the job of the
    attempt is known.

    Exits with 1 if rank 0 does not finish in time, if a later attempt of the job has begun, or if a
    person has to decide (HOLDFAST_CHECKPOINT_MAX_ROLLBACK, 24h by default).
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
        copies=restore_from,
        restart_reason=os.environ.get(RESTART_REASON_VARIABLE, ""),
    )
    if rank == 0:
        try:
            _report_all([*wrong, *verify_for_all(verification, _DEEPER)], is_init=not command)
        except AwaitsDecision as error:
            _report_all([str(error)], is_init=not command)
            return ExitCode.FAILED
    else:
        wait_for_result(verification)
    if command:
        sys.stdout.flush()
        os.execvp(command[0], command)  # noqa: S606 - an argument list
    return ExitCode.OK


def _report_all(lines: list[str], *, is_init: bool) -> None:
    """Print lines; those of an init container also go to the status of its pod."""
    for line in lines:
        click.echo(f"holdfast: {line}", err=True)
    if is_init and lines and _TERMINATION_MESSAGE.is_file():
        message = "\n".join(lines).encode()[:_MESSAGE_LIMIT]
        _TERMINATION_MESSAGE.write_bytes(message)


def _document(found: GuardResult, *, is_dry_run: bool) -> dict[str, object]:
    choice, before = found.choice, found.before
    resume = choice.resume
    return {
        "directory": before.folder,
        "format": before.format,
        "outcome": choice.outcome.value,
        "checkpoint": resume.name if resume is not None else None,
        "step": resume.step if resume is not None else None,
        "depth": resume.depth if resume is not None else None,
        "tracker": before.pointer.text or None,
        "set_back": choice.repoint,
        "aside": [one.name for one in choice.aside],
        "suspected": [one.name for one in choice.suspected],
        "rollback_seconds": choice.cost.time.total_seconds(),
        "rollback_steps": choice.cost.steps,
        "moved_to": list(found.moved.values()),
        "problems": {one.name: one.problems for one in before.checkpoints if one.problems},
        "dry_run": is_dry_run,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Row of ``holdfast checkpoint list``."""

    name: str
    step: int | None
    format: str
    state: str
    depth: str
    is_loaded: bool
    """Whether the framework would load it now; false where the user's script chooses."""

    is_choice: bool
    """Whether ``verify`` would choose it."""

    size: int
    changed_at: datetime
    reported_at: datetime | None
    problems: tuple[str, ...]


_COLUMNS: Final = (
    Column[_Row](title="name", cell=lambda row: row.name),
    Column[_Row](title="step", cell=lambda row: row.step),
    Column[_Row](title="format", cell=lambda row: row.format, wide=True),
    Column[_Row](title="state", cell=lambda row: row.state),
    Column[_Row](title="loaded", cell=lambda row: "yes" if row.is_loaded else ""),
    Column[_Row](title="choice", cell=lambda row: "resume" if row.is_choice else ""),
    Column[_Row](title="size", cell=lambda row: format_size(row.size)),
    Column[_Row](title="age", cell=lambda row: age(row.changed_at, datetime.now(UTC))),
    Column[_Row](
        title="reported",
        cell=lambda row: row.reported_at and age(row.reported_at, datetime.now(UTC)),
        minor=True,
    ),
    Column[_Row](title="problem", cell=lambda row: "; ".join(row.problems[:1]), minor=True),
)


@examples("holdfast checkpoint list /fsx/llama/checkpoints --depth hashes")
@checkpoint.command("list")
@click.argument("directory", type=click.Path(path_type=Path))
@depth_option
@format_option
@watch_option
@output_option(*LISTS)
def list_(*, directory: Path, depth: str, format_name: str | None, watch: bool, output: str) -> int:
    """List the checkpoints in DIRECTORY, newest first, and what verification finds.

    LOADED marks the checkpoint that the framework would load now; if the user's script selects it,
    none is marked. CHOICE marks the checkpoint that ``verify`` would select. REPORTED is the age of
    the report of its save by the script, if any. Nothing is changed.

    Exits with 1 if there are checkpoints and ``verify`` would find none to resume from.
    """

    def read() -> Survey:
        survey = verify_all(CheckpointDirectory(directory, format_name), Depth(depth))
        if not survey.exists:
            raise ConfigError(f"{directory} does not exist; expected a directory of checkpoints")
        return survey

    shown = show(
        read, lambda survey: _print_list(survey, directory, Depth(depth), output), watch=watch
    )
    outcome = choose(shown, Depth(depth), None, _trust(directory)).outcome
    return (
        ExitCode.OK if outcome in (ResumeOutcome.RESUME, ResumeOutcome.EMPTY) else ExitCode.FAILED
    )


def _trust(directory: Path) -> Trust:
    return Trust(history=read_history(directory))


def _print_list(survey: Survey, directory: Path, depth: Depth, output: str) -> None:
    loaded = None if survey.script_chooses else survey.loaded
    chosen = choose(survey, depth, None, _trust(directory))
    resume = chosen.resume if chosen.outcome is ResumeOutcome.RESUME else None
    rows = [
        _row(one, survey.format, is_loaded=one is loaded, is_choice=one is resume)
        for one in survey.checkpoints
    ]
    empty = f"{directory}: no checkpoint yet"
    if survey.others:
        empty = (
            f"{directory}: {', '.join(survey.others[:3])}: no checkpoint of a known format; name it"
            " with --format, or the directory that holds the checkpoints"
        )
    print_rows(rows, _COLUMNS, output=output, empty=empty)


def _row(one: Checkpoint, form: str, *, is_loaded: bool, is_choice: bool) -> _Row:
    return _Row(
        name=one.name,
        step=one.step,
        format=form,
        state=one.state.value,
        depth=one.depth.value if one.depth is not None else "",
        is_loaded=is_loaded,
        is_choice=is_choice,
        size=one.size,
        changed_at=one.changed_at,
        reported_at=one.reported_at,
        problems=one.problems,
    )
