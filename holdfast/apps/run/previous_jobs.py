"""Earlier jobs of a name on this machine, and the checkpoints that a new one resumes from."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.store import LocalStore, Submission
from holdfast.model.errors import BackendError


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousJob:
    """A job that a new one of the same name may resume from."""

    id: str
    started_at: datetime
    checkpoints: Path

    @property
    def has_checkpoints(self) -> bool:
        """Whether the directory contains anything."""
        with contextlib.suppress(OSError):
            return any(self.checkpoints.iterdir())
        return False


def archived_jobs(run: RunDir, archived: Path | None) -> list[PreviousJob]:
    """Jobs of the archived runs of a name, oldest first.

    Args:
        run: directory of the name.
        archived: where the last run was moved to; None if there was none.

    """
    root = run.path.parent
    paths = [path for path in root.glob("*") if _is_archive(path.name, run.name)]
    found = [_archived(RunDir(path), run, is_last=path == archived) for path in paths]
    return sorted((one for one in found if one is not None), key=lambda one: one.started_at)


def last_with_checkpoints(jobs: Sequence[PreviousJob]) -> PreviousJob | None:
    """The job to resume from, of jobs in the order in which they started; None if none can be."""
    return next((one for one in reversed(jobs) if one.has_checkpoints), None)


def report_resume(name: str, job: PreviousJob | None) -> None:
    """Report which job a new one of that name resumes from; None if no job has checkpoints."""
    if job is None:
        text = f"--resume: no earlier job {name} has checkpoints; {name} starts from the beginning"
    else:
        text = f"{name} resumes from job {job.id}; checkpoints: {job.checkpoints}"
    click.echo(f"holdfast: {text}", err=True)


def report_unused(name: str, job: PreviousJob | None) -> None:
    """Report the checkpoints of an earlier job of the same name that the new one does not use."""
    if job is not None:
        click.echo(
            f"holdfast: {name} starts without checkpoints; those of the earlier job {job.id} are "
            f"in {job.checkpoints}; to resume from the last job of a name that has checkpoints, "
            "add --resume",
            err=True,
        )


def _is_archive(directory: str, name: str) -> bool:
    return directory.startswith(f"{name}.") and directory[len(name) + 1 :].isdecimal()


def _archived(archived: RunDir, run: RunDir, *, is_last: bool) -> PreviousJob | None:
    """The job of an archived run; None if it is a run that a person gave that very name."""
    reported = _submission(archived)
    if reported is None or not reported.checkpoint_dir:
        at = datetime.fromtimestamp(archived.path.stat().st_mtime, UTC)
        own = PreviousJob(id=archived.name, started_at=at, checkpoints=archived.checkpoints)
        return own if is_last else None
    if reported.name != run.name:
        return None
    return PreviousJob(
        id=reported.id,
        started_at=reported.started_at,
        checkpoints=archived.moved_from(run, Path(reported.checkpoint_dir)),
    )


def _submission(run: RunDir) -> Submission | None:
    """How the job of a run was submitted; None where that cannot be read."""
    if not run.state.is_file():
        return None
    try:
        with contextlib.closing(LocalStore(run.state)) as store:
            return next(iter(store.submissions().values()), None)
    except BackendError as error:
        click.echo(f"holdfast: {error}", err=True)
        return None
