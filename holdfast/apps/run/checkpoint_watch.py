"""Background verification of saves: wires a checkpoint directory to ``CheckpointWatch``."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.files import DirectoryFiles
from holdfast.adapters.checkpoints.manifest_check import file_record
from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.adapters.checkpoints.plain_files import opened
from holdfast.adapters.checkpoints.weights import scan_weights
from holdfast.apps.clock import SystemClock
from holdfast.engine.checkpoint_watch import CheckpointWatch, Contents
from holdfast.model.checkpoint_manifests import CheckpointManifest, ManifestFile, WeightScan
from holdfast.model.checkpoints import CheckpointState
from holdfast.model.errors import BackendError
from holdfast.ports.checkpoint_files import SourceFile

SETTLE: Final = timedelta(seconds=2)
"""Time without a change after which a save may have ended. Formats without a marker look complete
between two files."""

_LISTED: Final = 3


def watch_of(folder: Path, format_name: str | None) -> CheckpointWatch:
    """Return the watch of a checkpoint directory.

    Raises:
        ConfigError: the format does not exist.
        BackendError: the directory cannot be read.

    """
    store = CheckpointDirectory(folder, format_name)
    store.survey()
    return CheckpointWatch(
        store,
        Contents(
            files=DirectoryFiles(folder, store.parts),
            record=partial(_record, store),
            scan=partial(_scan, store),
        ),
        DirectoryManifests(folder, may_be_inside=store.accepts_files),
        lambda name: store.moved_to(name) is not None,
        SystemClock(),
        SETTLE,
    )


def describe(manifest: CheckpointManifest, size: str) -> str:
    """Return one line about a verified checkpoint.

    Args:
        manifest: its manifest.
        size: its size, for people.

    """
    notes = [f"{size} verified in {manifest.seconds:.1f} s"]
    if manifest.problems:
        notes = list(manifest.problems[:_LISTED])
    weights = manifest.weights
    for what, names in (("NaN", weights.nan), ("infinity", weights.infinite)):
        if names:
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            notes.append(f"{what} in {', '.join(names[:_LISTED])}{more}")
    state = manifest.state.value
    if manifest.state is CheckpointState.COMPLETE and weights.nan:
        state = "complete, but suspected"
    return f"{manifest.name}: {state}: {'; '.join(notes)}"


def _record(store: CheckpointDirectory, name: str, file: SourceFile) -> ManifestFile:
    path = store.base(name) / file.path if file.path else store.base(name)
    try:
        with opened(path) as window:
            return file_record(window, file.path, file.changed_ns)
    except OSError as error:
        raise BackendError(f"{path} cannot be read: {error.strerror or error}") from error


def _scan(store: CheckpointDirectory, name: str) -> WeightScan:
    try:
        return scan_weights(store.base(name), store.parts(name))
    except OSError as error:
        raise BackendError(f"{store.base(name)} cannot be read: {error}") from error
