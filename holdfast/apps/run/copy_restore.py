"""Restores a copy before an attempt if the directory of a job has no checkpoint that is as good."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.files import DirectoryFiles
from holdfast.adapters.checkpoints.history import read_history
from holdfast.adapters.copies.table import open_copies
from holdfast.apps.clock import SystemClock
from holdfast.decisions.checkpoint_restore import plan_restore
from holdfast.decisions.checkpoint_trust import Trust
from holdfast.engine.checkpoint_guard import GuardResult
from holdfast.engine.checkpoint_mirror import CheckpointMirror
from holdfast.engine.checkpoint_wording import no_copy, restored_because
from holdfast.model.checkpoint_copies import CheckpointCopy
from holdfast.model.errors import BackendError, HoldfastError
from holdfast.model.jobs import CHECKPOINT_MIRROR_VARIABLE

COPIES_VARIABLE = "HOLDFAST_CHECKPOINT_COPIES"
"""Environment variable with the location of the copies, outside of ``holdfast run``."""


def copies_in(environment: Mapping[str, str]) -> str:
    """Return the location to restore copies from; empty for none."""
    mirror = environment.get(CHECKPOINT_MIRROR_VARIABLE, "")
    return environment.get(COPIES_VARIABLE, "") or mirror


def mirror_of(
    folder: Path,
    location: str,
    format_name: str | None = None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> CheckpointMirror:
    """Return the copies of a directory in a location.

    Raises:
        ConfigError: the format does not exist, or the location is not valid.

    """
    return CheckpointMirror(
        CheckpointDirectory(folder, format_name),
        DirectoryFiles(folder),
        open_copies(location),
        SystemClock(),
        on_bytes,
    )


def trust_of(folder: Path) -> Trust:
    """Return the history of a directory, with the default settings of the choice."""
    return Trust(history=read_history(folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Result of an attempt to restore a copy."""

    name: str = ""
    """Name of the checkpoint that was restored; empty if none was."""

    lines: tuple[str, ...] = ()
    """Lines for people."""

    moved: Mapping[str, str] = field(default_factory=dict)
    """New locations of the broken checkpoints, by name."""

    has_copies: bool = True
    """Whether the location may have copies: it cannot be read, or it has some."""

    awaits_decision: bool = False
    """Whether the attempt must not start without a copy."""


def restore_newest(
    store: CheckpointDirectory,
    found: GuardResult,
    location: str,
    since: datetime | None = None,
) -> Restored:
    """Restore the best copy, then move the broken checkpoints away.

    Nothing is changed before all files of a copy are there and match its manifest.

    Args:
        store: the directory, after its survey.
        found: what was found in it, and the decision; no process may be writing to it.
        location: where the copies are.
        since: copies that were made before are ignored; None for no limit.

    """
    folder = found.before.folder
    moved: dict[str, str] = {}
    try:
        mirror = mirror_of(Path(folder), location, store.format_name)
        copies = [one for one in mirror.copies() if since is None or one.copied_at >= since]
        if not copies:
            why = f"{folder}: nothing was restored: {location} has no complete copy"
            return Restored(lines=(why,), has_copies=False)
        plan = plan_restore(found.before, found.choice, copies, found.trust)
        if not plan.candidates:
            why = f"{folder}: nothing was restored: {no_copy(plan, location)}"
            return Restored(lines=(why,))

        def make_room(copy: CheckpointCopy) -> None:
            same = [one.name for one in plan.aside if one.name == copy.name]
            moved.update(store.apply(None, same) if same else {})

        try:
            copy, damaged = mirror.restore(plan.candidates, make_room)
        except BackendError as error:
            if not (plan.too_old or plan.suspected):
                raise
            raise BackendError(f"{error}; {no_copy(plan, location)}") from error
        others = [one.name for one in plan.aside if one.name not in moved]
        moved.update(store.apply(None, others) if others else {})
    except HoldfastError as error:
        lines = [f"{folder}: {name} was moved to {place}" for name, place in moved.items()]
        return Restored(lines=(*lines, f"{folder}: nothing was restored: {error}"), moved=moved)
    lines = [
        f"{folder}: {name} is incomplete or damaged; moved to {place}"
        for name, place in moved.items()
    ]
    text = f"{folder}: {restored_because(found.choice)}; {copy.name} was restored from {location}"
    return Restored(name=copy.name, lines=(*lines, *damaged, text), moved=moved)
