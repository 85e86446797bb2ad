"""``holdfast checkpoint show | choose | release``: what is known of one, and a person's choice."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from holdfast.adapters.checkpoints.directory import CheckpointDirectory, is_inside
from holdfast.adapters.checkpoints.history import read_history, write_history
from holdfast.apps.cli.checkpoint.options import (
    aside_names,
    checkpoint_names,
    depth_option,
    format_option,
)
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import (
    LISTS,
    RESULTS,
    Column,
    dry_run_option,
    is_document,
    output_option,
    print_details,
    print_document,
    print_section,
)
from holdfast.apps.cli.watch import show, watch_option
from holdfast.apps.exit_codes import ExitCode
from holdfast.decisions.checkpoint_trust import Trust, is_suspected, released
from holdfast.engine.checkpoint_guard import verified
from holdfast.engine.checkpoint_wording import why_suspected
from holdfast.model.checkpoints import (
    Checkpoint,
    CheckpointHistory,
    CheckpointState,
    Depth,
    Pin,
    ResumedAttempt,
)
from holdfast.model.errors import BackendError, ConfigError
from holdfast.model.set_aside import SetAside

_SET_ASIDE: Final = "set aside"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Details:
    """Output of ``holdfast checkpoint show``."""

    name: str
    path: str
    format: str = ""
    step: int | None = None
    state: str = _SET_ASIDE
    """A ``CheckpointState``, or that it was moved out of the directory."""

    depth: str = ""
    size: int | None = None
    """Bytes; None if it was set aside."""

    changed_at: datetime | None = None
    reported_at: datetime | None = None
    """Time at which the script reported its save."""

    watched_at: datetime | None = None
    """Time at which ``holdfast checkpoint watch`` verified it."""

    is_loaded: bool = False
    is_selected: bool = False
    """Whether a person selected it for the next attempt."""

    suspected: str = ""
    """Why it is suspected; empty if it is not."""

    set_aside: str = ""
    """Why it was moved out of the directory, if that is known."""

    problems: tuple[str, ...] = ()
    attempts: tuple[ResumedAttempt, ...] = ()
    """Attempts that resumed from a checkpoint of this name, oldest first."""


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def _end(attempt: ResumedAttempt) -> str:
    end = attempt.end
    if end is None:
        return "not known yet"
    kind = end.kind.value if end.kind is not None else "unknown"
    return f"{kind}: {end.reason}" if end.reason else kind


_ATTEMPTS: Final = (
    Column[ResumedAttempt](title="attempt", cell=lambda row: row.attempt),
    Column[ResumedAttempt](title="job", cell=lambda row: row.job),
    Column[ResumedAttempt](title="resumed", cell=lambda row: _time(row.at)),
    Column[ResumedAttempt](title="end", cell=_end),
    Column[ResumedAttempt](title="first step", cell=lambda row: row.end and row.end.first_step),
    Column[ResumedAttempt](title="last step", cell=lambda row: row.end and row.end.last_step),
    Column[ResumedAttempt](
        title="saved", cell=lambda row: "yes" if row.end is not None and row.end.has_saved else ""
    ),
)


@examples(
    "holdfast checkpoint show /fsx/llama/checkpoints iter_0000300",
    "holdfast checkpoint show /fsx/llama/checkpoints 300 --depth hashes -o json",
)
@click.command("show")
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("name", shell_complete=checkpoint_names)
@depth_option
@format_option
@watch_option
@output_option(*LISTS)
def show_checkpoint(
    *, directory: Path, name: str, depth: str, format_name: str | None, watch: bool, output: str
) -> int:
    """Show the checkpoint NAME in DIRECTORY: its state, and the attempts that resumed from it.

    NAME is a name or a step of `holdfast checkpoint list`, or the name of a checkpoint that was
    set aside. Nothing is changed.

    Exits with 1 if the checkpoint is incomplete, damaged or set aside.
    """

    def read() -> _Details:
        store = CheckpointDirectory(directory, format_name)
        return _details(store, directory, name, Depth(depth), read_history(directory))

    def display(found: _Details) -> None:
        if is_document(output):
            print_document(found, output)
        else:
            _print(found, output)

    found = show(read, display, watch=watch)
    is_complete = found.state == CheckpointState.COMPLETE
    return ExitCode.OK if is_complete else ExitCode.FAILED


@examples(
    "holdfast checkpoint choose /fsx/llama/checkpoints iter_0000200",
    "holdfast checkpoint choose /fsx/llama/checkpoints --none",
)
@click.command("choose")
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("name", required=False, shell_complete=checkpoint_names)
@click.option("--none", "is_none", is_flag=True, help="Remove the selection.")
@depth_option
@format_option
@dry_run_option
@output_option(*RESULTS)
def choose_(
    *,
    directory: Path,
    name: str | None,
    is_none: bool,
    depth: str,
    format_name: str | None,
    dry_run: bool,
    output: str,
) -> int:
    """Select the checkpoint NAME in DIRECTORY for the next attempt of the job.

    NAME is a name or a step. The checkpoint is verified first. Before the next attempt, newer ones
    are moved to DIRECTORY.set-aside, and the tracker or link is set to it. Rollback limits do
    not apply. The selection applies to one attempt; --none removes it.

    Exits with 1 if the checkpoint is not complete.
    """
    if is_none == (name is not None):
        raise ConfigError("NAME: expected the name of a checkpoint, or --none to remove one")
    store = CheckpointDirectory(directory, format_name)
    history = read_history(directory)
    if name is None:
        text = "no checkpoint is selected; the next attempt resumes from the newest complete one"
        pin = None
        store.survey()
    else:
        one = _verified(store, directory, name, Depth(depth))
        if one.state is not CheckpointState.COMPLETE:
            raise BackendError(
                f"{directory}/{one.name}: {one.state.value}: {'; '.join(one.problems[:1])}; select"
                f" a complete one of: holdfast checkpoint list {directory}"
            )
        pin = Pin(name=one.name, at=datetime.now(UTC))
        text = f"the next attempt resumes from {one.name}"
    if not dry_run:
        changed = replace(history, pin=pin)
        write_history(directory, changed, may_be_inside=store.accepts_files)
    chosen = {"directory": str(directory), "selected": pin and pin.name, "dry_run": dry_run}
    _print_result(chosen, f"{directory}: {text}", dry_run=dry_run, output=output)
    return ExitCode.OK


@examples("holdfast checkpoint release /fsx/llama/checkpoints iter_0000300")
@click.command("release")
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("name", shell_complete=aside_names)
@format_option
@dry_run_option
@output_option(*RESULTS)
def release(
    *, directory: Path, name: str, format_name: str | None, dry_run: bool, output: str
) -> int:
    """Move the checkpoint NAME that was set aside back to DIRECTORY.

    Failures of earlier attempts no longer count against it. A tracker or link is unchanged: to
    resume from the checkpoint, use `holdfast checkpoint choose`. Run it while no rank of the job
    is running.

    Exits with 1 if DIRECTORY has a checkpoint of that name.
    """
    store = CheckpointDirectory(directory, format_name)
    survey = store.survey()
    moved = _moved(store, directory, name)
    history = read_history(directory)
    record = _record(history, moved)
    target = record.name if record is not None and is_inside(record.name) else name
    if survey.named(target) is not None and dry_run:
        raise BackendError(f"{directory / target} already exists; rename or move it first")
    if not dry_run:
        store.release(moved, target)
        changed = released(history, target, str(moved), datetime.now(UTC))
        write_history(directory, changed, may_be_inside=store.accepts_files)
    done = {"name": target, "from": str(moved), "to": str(directory / target), "dry_run": dry_run}
    text = f"{moved} {'would be' if dry_run else 'was'} moved to {directory / target}"
    _print_result(done, text, dry_run=False, output=output)
    return ExitCode.OK


def _print_result(done: object, text: str, *, dry_run: bool, output: str) -> None:
    if is_document(output):
        print_document(done, output)
    else:
        click.echo(f"{text} (dry run, nothing was changed)" if dry_run else text)


def _verified(store: CheckpointDirectory, directory: Path, name: str, depth: Depth) -> Checkpoint:
    """Return the checkpoint of a name or step, verified.

    Raises:
        ConfigError: there is none, or several have that step.

    """
    survey = store.survey()
    named = [one for one in survey.checkpoints if one.name == name]
    found = named or [one for one in survey.checkpoints if str(one.step) == name]
    if len(found) != 1:
        names = ", ".join(one.name for one in (found or survey.checkpoints)[:10]) or "none"
        problem = "several checkpoints have that step" if found else "no such checkpoint"
        raise ConfigError(f"{name}: {problem} in {directory}; expected one of: {names}")
    survey = verified(store, survey, found[0], depth)
    return next(one for one in survey.checkpoints if one.name == found[0].name)


def _moved(store: CheckpointDirectory, directory: Path, name: str) -> Path:
    if (found := store.moved_to(name)) is not None:
        return found
    names = ", ".join(sorted(store.set_aside())[:10]) or "none"
    raise ConfigError(f"{name}: not set aside from {directory}; expected one of: {names}")


def _record(history: CheckpointHistory, moved: Path) -> SetAside | None:
    return next((one for one in reversed(history.aside) if one.path == str(moved)), None)


def _details(
    store: CheckpointDirectory,
    directory: Path,
    name: str,
    depth: Depth,
    history: CheckpointHistory,
) -> _Details:
    survey = store.survey()
    known = {value for one in survey.checkpoints for value in (one.name, str(one.step))}
    if name not in known and (moved := store.moved_to(name)) is not None:
        record = _record(history, moved)
        return _Details(
            name=name,
            path=str(moved),
            set_aside=record.why if record is not None else "",
            attempts=_resumed(history, record.name if record is not None else name),
        )
    one = _verified(store, directory, name, depth)
    trust = Trust(history=history)
    loaded = None if survey.script_chooses else survey.loaded
    return _Details(
        name=one.name,
        path=str(directory / one.name),
        format=survey.format,
        step=one.step,
        state=one.state.value,
        depth=one.depth.value if one.depth is not None else "",
        size=one.size,
        changed_at=one.changed_at,
        reported_at=one.reported_at,
        watched_at=one.watched_at,
        is_loaded=loaded is not None and loaded.name == one.name,
        is_selected=history.pin is not None and history.pin.name == one.name,
        suspected=why_suspected(one, trust) if is_suspected(one, trust) else "",
        problems=one.problems,
        attempts=_resumed(history, one.name),
    )


def _resumed(history: CheckpointHistory, name: str) -> tuple[ResumedAttempt, ...]:
    return tuple(one for one in history.attempts if one.checkpoint == name)


def _print(found: _Details, output: str) -> None:
    pairs: list[tuple[str, object]] = [("Name", found.name), ("Path", found.path)]
    pairs += [("State", found.state), ("Reason", found.set_aside)] if found.set_aside else []
    if found.state != _SET_ASIDE:
        pairs += [
            ("Format", found.format),
            ("Step", found.step),
            ("State", found.state),
            ("Verified", found.depth),
            ("Size", f"{found.size} bytes"),
            ("Changed", found.changed_at and _time(found.changed_at)),
            ("Reported", found.reported_at and _time(found.reported_at)),
            ("Watched", found.watched_at and _time(found.watched_at)),
            ("Loaded", "yes" if found.is_loaded else "no"),
            ("Selected", "yes" if found.is_selected else "no"),
            ("Suspected", found.suspected or "no"),
        ]
    print_details([*pairs, *(("Problem", problem) for problem in found.problems)])
    print_section("Attempts that resumed from it", found.attempts, _ATTEMPTS, output=output)
