"""``CheckpointStore`` of a directory of checkpoints in any known format."""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.beside import resolved
from holdfast.adapters.checkpoints.contract import CannotVerify, CheckpointFormat, Found, Names
from holdfast.adapters.checkpoints.manifest_check import compare, manifest_of
from holdfast.adapters.checkpoints.parts import move_aside, parts_size, release_parts
from holdfast.adapters.checkpoints.plain_files import Entry, listed, tree_size
from holdfast.adapters.checkpoints.save_reports import read_reports
from holdfast.adapters.checkpoints.table import ROWS, format_named
from holdfast.kit.bounded_files import NotRegular
from holdfast.kit.files import sync_directory
from holdfast.model.checkpoints import (
    Checkpoint,
    CheckpointState,
    Depth,
    PointerKind,
    Problem,
    SaveReport,
    Survey,
)
from holdfast.model.errors import BackendError

ASIDE: Final = ".set-aside"
"""Suffix of the sibling directory to which checkpoints are moved."""

INSIDE: Final = ".holdfast-set-aside"
"""Subdirectory used instead if a sibling is impossible, as at the mount point of a volume."""

_PROBLEMS: Final = 20
"""Maximum number of problems kept per checkpoint."""

_NOT_HERE: Final = frozenset((errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS))

_SIDE_NAMES: Final = frozenset(
    ("logs", "runs", "tensorboard", "wandb", "mlruns", "lightning_logs", "profiles", "journal")
)
_SIDE_SUFFIXES: Final = frozenset(
    (".log", ".txt", ".out", ".err", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".md", ".py")
)


class CheckpointDirectory:
    """One checkpoint directory. Call ``survey`` first: the other calls refer to its result.

    Args:
        folder: the directory; it need not exist.
        format_name: name of a format in ``table`` or in an installed package; None to detect a
            format of ``table`` by content.
        sample: number of blocks that ``verify`` compares with the manifest of a checkpoint.

    Raises:
        ConfigError: the format does not exist, or its package is broken.

    """

    def __init__(self, folder: Path, format_name: str | None = None, *, sample: int = 0) -> None:
        self.format_name = format_name
        self._folder = folder
        self._sample = sample
        self._rows = ROWS if format_name is None else (format_named(format_name),)
        self._row: CheckpointFormat | None = None
        self._found: dict[str, Checkpoint] = {}

    def survey(self) -> Survey:
        """See ``CheckpointStore.survey``."""
        row, found, names = self._read()
        self._row = row
        reports = read_reports(self._folder)
        lost = self._lost(reports.values())
        if found is not None:
            found = replace(found, checkpoints=_reported(found.checkpoints, reports.values()))
        self._found = {one.name: one for one in found.checkpoints} if found is not None else {}
        if row is None or found is None:
            others = tuple(sorted(entry.name for entry in names.values() if not _is_side(entry)))
            folder, exists = str(self._folder.absolute()), os.path.lexists(self._folder)
            return Survey(folder=folder, format="", exists=exists, others=others, lost=lost)
        return Survey(
            folder=str(self._folder.absolute()),
            format=row.name,
            checkpoints=found.checkpoints,
            pointer=found.pointer,
            script_chooses=row.script_chooses,
            is_copyable=row.parts is None,
            lost=lost,
        )

    def verify(self, name: str, depth: Depth, older: str | None) -> Checkpoint:
        """See ``CheckpointStore.verify``."""
        row, one = self._row, self._found[name]
        if row is None:
            raise BackendError(f"{self._folder} contains no checkpoint of a known format")
        path = self._folder / name
        size, changed_at = self._size(name, row)
        one = replace(one, size=size, changed_at=changed_at, depth=depth)
        previous = self._folder / older if older is not None else None
        problems: list[Problem] = []
        base, is_split = self.base(name), row.parts is not None
        manifest = manifest_of(self._folder, name, base)
        try:
            if manifest is not None:
                found = compare(base, manifest, depth, self._sample, may_lack=is_split)
                problems += found.problems[:_PROBLEMS]
                one = replace(
                    one,
                    watched_at=manifest.verified_at,
                    compared=found.compared,
                    nan=manifest.weights.nan,
                )
            is_covered = manifest is not None and not is_split  # SHA-256 covers all files
            own_depth = Depth.SIZES if is_covered else depth
            for problem in row.check(path, own_depth, previous):
                problems.append(problem)
                if len(problems) >= _PROBLEMS:
                    break
        except CannotVerify as error:
            return replace(one, state=CheckpointState.UNKNOWN, problems=(str(error),))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            problems.append(Problem(text=f"{error.filename or path} is missing or not a file"))
        except NotRegular as error:
            problems.append(Problem(text=f"{error.filename} {error.strerror}"))
        except OSError as error:
            raise BackendError(f"{path} cannot be read: {error}") from error
        return replace(
            one,
            state=_state(problems),
            problems=tuple(dict.fromkeys(problem.text for problem in problems)),
        )

    def base(self, name: str) -> Path:
        """Return the directory to which the files of a checkpoint are relative, or its one file."""
        is_split = self._row is not None and self._row.parts is not None
        return self._folder if is_split else self._folder / name

    def parts(self, name: str) -> tuple[str, ...] | None:
        """Return the files of a checkpoint in the directories of others, relative to ``base``.

        None if each checkpoint is one file or directory.

        Raises:
            OSError: the directory cannot be read.

        """
        if self._row is None or self._row.parts is None:
            return None
        return self._row.parts(self._folder, name)

    def apply(self, resume: str | None, aside: Sequence[str]) -> Mapping[str, str]:
        """See ``CheckpointStore.apply``."""
        row = self._row
        if row is None:
            raise BackendError(f"{self._folder} contains no checkpoint of a known format")
        moved: dict[str, str] = {}
        try:
            if resume is not None and row.repoint is not None:
                row.repoint(self._folder, resume)
            for name in aside:
                with suppress(FileNotFoundError):  # done by a concurrent call
                    moved[name] = str(self._moved(name, row))
        except OSError as error:
            raise BackendError(f"{self._folder} cannot be repaired: {error}") from error
        return moved

    def set_aside(self) -> Mapping[str, Path]:
        """Return the location of each checkpoint that was moved out of the directory, by name.

        The name is that in the directory to which it was moved.

        Raises:
            BackendError: that directory cannot be read.

        """
        try:
            return {
                name: entry.path
                for home in reversed(self._homes())
                for name, entry in listed(home).items()
            }
        except OSError as error:
            raise BackendError(f"{error.filename} cannot be read: {error}") from error

    def moved_to(self, name: str) -> Path | None:
        """Return the location of a checkpoint that was moved out of the directory; None if unknown.

        The name may contain a directory, as that of Accelerate's ``checkpoints/checkpoint_2``.
        """
        if not is_inside(name):
            return None
        found = (home / name for home in self._homes())
        return next((path for path in found if os.path.lexists(path)), None)

    def release(self, moved: Path, name: str) -> None:
        """Move one of ``set_aside`` back, as ``name``.

        Raises:
            BackendError: the name exists, or the checkpoint cannot be moved.

        """
        if parts := self._moved_parts(moved, name):
            release_parts(moved, self._folder, parts)
            return
        target = self._folder / name
        if os.path.lexists(target):
            raise BackendError(
                f"{target} already exists, {moved} was not moved; rename or move it first"
            )
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(moved, target)
            sync_directory(target.parent)
        except OSError as error:
            raise BackendError(f"{moved} cannot be moved to {target}: {error}") from error

    @property
    def accepts_files(self) -> bool:
        """Whether a file may be put into the directory: the framework ignores foreign entries.

        Nothing is put into a directory whose framework is unknown, unless it is a mount point: a
        file beside that would not be on the volume.
        """
        if self._row is None:
            return os.path.ismount(self._folder)
        return not self._row.is_strict

    def _read(self) -> tuple[CheckpointFormat | None, Found | None, Names]:
        try:
            names = listed(self._folder)
            for row in self._rows:
                found = row.find(self._folder, names)
                if found is not None:
                    return row, found, names
        except OSError as error:
            raise BackendError(f"{self._folder} cannot be read: {error}") from error
        return None, None, names

    def _lost(self, reports: Iterable[SaveReport]) -> SaveReport | None:
        """Return the newest report if nothing exists under its name, here or where it was moved."""
        last = max(reports, key=lambda report: report.at, default=None)
        if last is None or not is_inside(last.name) or os.path.lexists(self._folder / last.name):
            return None
        names = (last.name, *map(str, Path(last.name).parents[:-1]))
        return None if any(self.moved_to(name) is not None for name in names) else last

    def _moved(self, name: str, row: CheckpointFormat) -> Path:
        """Move a checkpoint out of the directory, on the same file system."""
        homes = self._homes()[: 1 if row.is_strict else 2]
        for home in homes:
            try:
                home.mkdir(exist_ok=True)
                target = _free(home / name)
                if row.parts is not None:
                    move_aside(self._folder, target, row.parts(self._folder, name))
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.rename(self._folder / name, target)
                sync_directory(home)
            except OSError as error:
                if error.errno not in _NOT_HERE or home == homes[-1]:
                    raise
                continue
            return target
        raise OSError(
            errno.EXDEV, f"cannot move checkpoints out of {self._folder} on its file system"
        )

    def _size(self, name: str, row: CheckpointFormat) -> tuple[int, datetime]:
        if row.parts is None:
            return tree_size(self._folder / name)
        try:
            return parts_size(self._folder, row.parts(self._folder, name))
        except OSError as error:
            raise BackendError(f"{self._folder} cannot be read: {error}") from error

    def _moved_parts(self, moved: Path, name: str) -> tuple[str, ...]:
        """Return the files of a checkpoint that was moved, if its format has ``parts``."""
        if not moved.is_dir():
            return ()
        try:
            found = (row.parts(moved, name) for row in self._rows if row.parts is not None)
            return next((parts for parts in found if parts), ())
        except OSError as error:
            raise BackendError(f"{moved} cannot be read: {error}") from error

    def _homes(self) -> tuple[Path, Path]:
        """Return the directories to which checkpoints are moved, the preferred one first."""
        folder = resolved(self._folder)
        return folder.with_name(folder.name + ASIDE), folder / INSIDE


def is_inside(name: str) -> bool:
    """Return whether a name that a file or a person gives stays within its directory."""
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts and name not in ("", ".")


def latest_step(folder: Path) -> int | None:
    """Return the result of ``saved_step``; None, too, if the directory cannot be read."""
    try:
        return saved_step(folder)
    except BackendError:
        return None


def saved_step(folder: Path) -> int | None:
    """Return the step of the checkpoint that the framework will load; None if unknown.

    Cheap: nothing is verified. The directory may be untrusted: only regular files are read.

    Raises:
        BackendError: the directory cannot be read.

    """
    survey = CheckpointDirectory(folder).survey()
    if survey.pointer.kind is not PointerKind.NONE:
        return survey.pointer.step
    return next((one.step for one in survey.checkpoints if one.is_ended), None)


def _reported(those: Sequence[Checkpoint], reports: Iterable[SaveReport]) -> tuple[Checkpoint, ...]:
    """Return the checkpoints with the times at which the script reported them as saved."""
    times: dict[str, datetime] = {}
    for report in reports:
        for name in (report.name, *map(str, Path(report.name).parents[:-1])):
            times[name] = max(times.get(name, report.at), report.at)
    return tuple(replace(one, reported_at=times.get(one.name)) for one in those)


def _state(problems: Sequence[Problem]) -> CheckpointState:
    states = {problem.state for problem in problems}
    for state in (
        CheckpointState.DAMAGED,
        CheckpointState.INCOMPLETE,
        CheckpointState.UNKNOWN,
    ):
        if state in states:
            return state
    return CheckpointState.COMPLETE


def _is_side(entry: Entry) -> bool:
    """Return whether an entry, such as logs, is not a checkpoint but usual beside checkpoints."""
    return (
        entry.name.startswith(".")
        or entry.name in _SIDE_NAMES
        or entry.name.startswith("events.out.tfevents")
        or (entry.is_file and (entry.size == 0 or Path(entry.name).suffix in _SIDE_SUFFIXES))
        or (entry.is_dir and _is_empty(entry.path))
    )


def _is_empty(folder: Path) -> bool:
    try:
        return not os.listdir(folder)
    except OSError:
        return False


def _free(path: Path) -> Path:
    free, number = path, 1
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free
