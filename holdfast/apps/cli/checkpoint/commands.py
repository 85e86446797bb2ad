"""``holdfast checkpoint``: verifies and lists the checkpoints of a job."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from holdfast.adapters.checkpoints.attempt_claim import claim
from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.history import read_history
from holdfast.adapters.checkpoints.manifest_check import SAMPLE
from holdfast.adapters.slurm.jobs.attempts import attempt_in, job_in
from holdfast.apps.cli.checkpoint.copies import copies, mirror, restore
from holdfast.apps.cli.checkpoint.guard import guard_
from holdfast.apps.cli.checkpoint.options import DEEPER, BadLoss, depth_option, format_option
from holdfast.apps.cli.checkpoint.selection import choose_, release, show_checkpoint
from holdfast.apps.cli.checkpoint.watch import watch as watch_checkpoints
from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.output import (
    NAMED_LISTS,
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
from holdfast.apps.cli.selecting import select_options, taken_selection
from holdfast.apps.cli.watch import show, watch_option
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.run.checkpoint_verification import (
    QUIET,
)
from holdfast.apps.run.checkpoints import ROLLBACK_VARIABLE
from holdfast.apps.run.resume_history import (
    Verification,
    preview,
    verify_and_record,
)
from holdfast.apps.views.selection import RowFields, Selection, selected
from holdfast.decisions.checkpoint_choice import ResumeOutcome, choose
from holdfast.decisions.checkpoint_trust import CheckpointPolicy, Trust
from holdfast.decisions.save_reports import incomplete_saves
from holdfast.engine.checkpoint_guard import GuardResult, verify_all
from holdfast.engine.checkpoint_wording import sentences
from holdfast.kit.units import format_duration
from holdfast.model.checkpoints import Checkpoint, CheckpointState, Depth, Survey
from holdfast.model.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

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
        " beyond it, exit with 1 without resuming. 0s means no limit.",
    )(command)


@click.group(cls=FullHelpGroup)
def checkpoint() -> None:
    """Verify checkpoints before a job resumes from them, and select the one to resume from."""


checkpoint.add_command(guard_)
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
    help="Declare that no rank is running: also act on a checkpoint that changed within the last"
    " minute.",
)
@click.option(
    "--bad-loss",
    type=BadLoss(),
    metavar="STEP@TIME",
    help="Move checkpoints that were saved since a bad loss to DIRECTORY.set-aside. STEP is the"
    " step with that loss, TIME the time at which it was reported, as in HOLDFAST_BAD_LOSS.",
)
@_rollback_option
@click.option(
    "--attempt",
    type=click.IntRange(min=0),
    default=lambda: attempt_in(os.environ),
    help="Number of the attempt that begins; fails if a later one has begun.",
)
@output_option(*RESULTS)
def verify(  # noqa: PLR0913 - one parameter for each option
    *,
    directory: Path,
    depth: str,
    format_name: str | None,
    dry_run: bool,
    job_stopped: bool,
    bad_loss: tuple[int, datetime] | None,
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
    how = Verification(
        depth=Depth(depth),
        quiet_since=quiet_since,
        policy=policy,
        bad_loss=bad_loss,
        job=job_in(os.environ),
    )
    more: tuple[str, ...] = ()
    if dry_run:
        found = preview(store, directory, how)
    else:
        done = verify_and_record(store, directory, how)
        found, more = done.found, done.lines
    code = _CODES.get(found.choice.outcome, ExitCode.FAILED)
    if is_document(output):
        print_document(_document(found, is_dry_run=dry_run), output)
    else:
        for line in [*sentences(found, DEEPER), *more]:
            click.echo(line, err=code is ExitCode.FAILED)
    return code


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
        drop=1,
    ),
    Column[_Row](title="problem", cell=lambda row: "; ".join(row.problems[:1]), whole=True),
)
_STATES: Final = tuple(state.value for state in CheckpointState)
_FIELDS: Final = RowFields[_Row](
    states=lambda row: (row.state,),
    since=lambda row: row.changed_at,
    reason=lambda row: "; ".join(row.problems),
    jobs=lambda _: (),
    labels={"name": lambda row: row.name, "format": lambda row: row.format},
)


@examples(
    "holdfast checkpoint list /fsx/llama/checkpoints --depth hashes",
    "holdfast checkpoint list /fsx/llama/checkpoints --state damaged,incomplete --output name",
)
@checkpoint.command("list")
@click.argument("directory", type=click.Path(path_type=Path))
@depth_option
@format_option
@select_options(_STATES, tuple(_FIELDS.labels), has_jobs=False)
@watch_option
@output_option(*NAMED_LISTS)
def list_(
    *,
    directory: Path,
    depth: str,
    format_name: str | None,
    watch: bool,
    output: str,
    no_headers: bool,
    **values: Any,
) -> int:
    """List the checkpoints in DIRECTORY, newest first, with the results of their verification.

    A warning names a save that the script reported as done although it is incomplete.

    LOADED marks the checkpoint that the framework would load now; if the user's script selects it,
    none is marked. CHOICE marks the checkpoint that `verify` would select. REPORTED is the age of
    the report of its save by the script, if any. --reason matches part of a problem.
    Nothing is changed.

    Exits with 1 if there are checkpoints, shown or not, and `verify` would find none to resume
    from.
    """

    def read() -> Survey:
        survey = verify_all(CheckpointDirectory(directory, format_name), Depth(depth))
        if not survey.exists:
            raise ConfigError(f"{directory} does not exist; expected a directory of checkpoints")
        return survey

    selection = taken_selection(values)
    shown = show(
        read,
        lambda survey: _print_list(
            survey, directory, Depth(depth), selection, output, headers=not no_headers
        ),
        watch=watch,
    )
    outcome = choose(shown, Depth(depth), None, _trust(directory)).outcome
    return (
        ExitCode.OK if outcome in (ResumeOutcome.RESUME, ResumeOutcome.EMPTY) else ExitCode.FAILED
    )


def _trust(directory: Path) -> Trust:
    return Trust(history=read_history(directory))


def _print_list(
    survey: Survey,
    directory: Path,
    depth: Depth,
    selection: Selection,
    output: str,
    *,
    headers: bool,
) -> None:
    loaded = None if survey.script_chooses else survey.loaded
    chosen = choose(survey, depth, None, _trust(directory))
    resume = chosen.resume if chosen.outcome is ResumeOutcome.RESUME else None
    rows = [
        _row(one, survey.format, is_loaded=one is loaded, is_choice=one is resume)
        for one in survey.checkpoints
    ]
    empty = f"{directory}: no checkpoint yet"
    if rows:
        empty = "No checkpoint matches."
    elif survey.others:
        empty = (
            f"{directory}: {', '.join(survey.others[:3])}: no checkpoint of a known format;"
            " specify --format, or the directory that contains the checkpoints"
        )
    shown = selected(rows, _FIELDS, selection, datetime.now(UTC))
    print_rows(shown, _COLUMNS, output=output, empty=empty, headers=headers)
    for one in incomplete_saves(survey, datetime.now(UTC)):
        click.echo(f"holdfast: warning: {one.text}", err=True)


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
