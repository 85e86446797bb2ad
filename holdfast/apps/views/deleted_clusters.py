"""State, logs and checkpoints that deleted clusters left on this machine."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from holdfast.adapters.local.layout import runs
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.views.run_jobs import cluster_of
from holdfast.apps.views.runs import KnownRun
from holdfast.model.errors import BackendError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedCluster:
    """Deleted cluster."""

    cluster: str
    """Name of the cluster; a later cluster may have the same name."""

    deleted_at: datetime
    jobs: int
    """Number of jobs that the cluster has had."""

    size_bytes: int
    """Size of all its files, checkpoints included."""

    directory: str


def deleted_clusters(home: Path) -> list[DeletedCluster]:
    """Return all deleted clusters, the earliest deletion first.

    A cluster whose state is damaged is named after its directory.
    """
    return sorted(_deleted(home), key=lambda one: one.deleted_at)


def remove(cluster: DeletedCluster) -> None:
    """Remove all files of a deleted cluster.

    Raises:
        BackendError: a file cannot be removed.

    """
    try:
        shutil.rmtree(cluster.directory)
    except OSError as error:
        raise BackendError(f"{error.filename} cannot be removed: {error.strerror}") from error


def _deleted(home: Path) -> Iterator[DeletedCluster]:
    for run in runs(home, deleted=True):
        if not run.is_deleted:
            continue
        name, jobs = run.name, 0
        with (
            contextlib.suppress(BackendError),
            contextlib.closing(LocalStore(run.state)) as store,
        ):
            name = cluster_of(KnownRun(run, store, is_active=False))
            jobs = len(store.jobs())
        yield DeletedCluster(
            cluster=name,
            deleted_at=datetime.fromtimestamp(run.state.stat().st_mtime, UTC),
            jobs=jobs,
            size_bytes=_size(run.path),
            directory=str(run.path),
        )


def _size(directory: Path) -> int:
    found = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # a file that was deleted meanwhile
                found += os.lstat(os.path.join(parent, name)).st_size
    return found
