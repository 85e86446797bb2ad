"""Clusters of local machines: their directories and instance groups."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

from holdfast.adapters.local.cluster_store import ClusterStore, LocalMember
from holdfast.adapters.local.first_boot import provision_of, scripts_path
from holdfast.adapters.local.layout import RunDir, cluster_dir, deleted_dir
from holdfast.adapters.local.lock import guarded, is_held
from holdfast.adapters.local.store import LocalStore
from holdfast.kit.sqlite_files import backup_of
from holdfast.model.clusters import (
    DesiredCluster,
    GroupMachine,
    GroupStage,
    LifecycleScripts,
    MachineGroup,
    MachineState,
)
from holdfast.model.errors import BackendError, RetryLater, StateDamaged
from holdfast.model.nodes import Phase

_STILL_DELETED: Final = timedelta(milliseconds=250)

Start = Callable[[RunDir], None]
"""Starts the supervisor process of a cluster; no effect if it is running."""


Store = TypeVar("Store", ClusterStore, LocalStore)


@contextlib.contextmanager
def opened(run: RunDir, store_type: Callable[[Path], Store]) -> Iterator[Store | None]:
    """Open the state of a cluster, or give None if there is none.

    The supervisor moves the directory of a deleted cluster; SQLite reports an I/O error for a file
    that was moved while it is open.

    Raises:
        BackendError: the state cannot be read.

    """
    try:
        with guarded(run):
            if not run.state.is_file():
                yield None
                return
            with contextlib.closing(store_type(run.state)) as store:
                yield store
    except OSError as error:
        raise BackendError(f"{run.path}: {error}") from error


class LocalMachineGroups:
    """A ``MachineGroups``; the supervisor process of each cluster reads the requested sizes.

    Args:
        home: directory of the clusters.
        start: starts a supervisor process.

    """

    def __init__(self, home: Path, start: Start) -> None:
        self._home = home
        self._start = start

    def rejections(self, cluster: DesiredCluster) -> Sequence[str]:
        """Return what of a cluster is not available: lifecycle scripts that do not exist.

        Unchanged groups are not checked: they may shrink without their scripts.
        """
        new = [one for one in cluster.groups if one.stage is GroupStage.NEW]
        return [
            f"InstanceGroups: {one.name}: LifeCycleConfig: {why}"
            for one in new
            if (why := _rejection(one.made_of.scripts))
        ]

    def ensure(self, group: MachineGroup) -> None:
        """See ``MachineGroups.ensure``."""
        run = cluster_dir(self._home, group.cluster)
        try:
            with guarded(run):
                _put_by_earlier(run, group.uid)
                if not run.state.exists():
                    run.create()
                    run.path.chmod(0o700)  # the environment of jobs may hold secrets
                with contextlib.closing(ClusterStore(run.state, create=True)) as store:
                    store.put_uid(group.uid)
                    store.put_group(group)
        except OSError as error:
            raise BackendError(f"{run.path} cannot be created: {error}") from error
        self._wake(run)

    def machines(self, group: str) -> Sequence[GroupMachine]:
        """See ``MachineGroups.machines``."""
        cluster, _, name = group.partition("/")
        run = cluster_dir(self._home, cluster)
        with self._opened(run) as store:
            if store is None:
                return ()
            members = [one for one in store.members() if one.group == name]
            if members or name in store.groups():
                self._start(run)
            return tuple(_machine(run, one) for one in members)

    def scale(self, group: str, count: int) -> None:
        """See ``MachineGroups.scale``."""
        cluster, _, name = group.partition("/")
        run = cluster_dir(self._home, cluster)
        with self._opened(run) as store:
            if store is None:
                raise BackendError(f"no cluster {cluster}: {run.path} no longer exists")
            store.scale(name, count)
        self._wake(run)

    def remove(self, group: str, ids: Sequence[str]) -> None:
        """See ``MachineGroups.remove``: machines that a removed one replaces go with it."""
        cluster, _, name = group.partition("/")
        run = cluster_dir(self._home, cluster)
        with self._opened(run) as store:
            if store is None:
                return
            members = store.members()
            named = [one for one in members if one.provider_id in ids and one.group == name]
            there = {one.name for one in members}
            before = [one.replaces for one in named if one.replaces in there]
            store.remove_nodes(name, [one.name for one in named], along=before)
        self._wake(run)

    def delete(self, group: str) -> None:
        """See ``MachineGroups.delete``."""
        cluster, _, name = group.partition("/")
        run = cluster_dir(self._home, cluster)
        with self._opened(run) as store:
            if store is not None:
                store.remove_group(name)
        if run.state.exists():
            self._wake(run)

    @contextlib.contextmanager
    def _opened(self, run: RunDir) -> Iterator[ClusterStore | None]:
        """Open the state of a cluster; start its supervisor, which restores a damaged one."""
        try:
            with opened(run, ClusterStore) as store:
                yield store
        except StateDamaged:
            if backup_of(run.state).is_file() and not is_held(run):
                self._start(run)
            raise

    def _wake(self, run: RunDir) -> None:
        with contextlib.suppress(FileNotFoundError):
            run.wake.touch()
        if not is_held(run):
            self._start(run)


def archive_deleted(run: RunDir) -> None:
    """Archive the directory of a cluster that has no instance groups any more.

    A cluster to which a group was added meanwhile stays.
    """
    with guarded(run):
        with contextlib.closing(ClusterStore(run.state)) as store:
            uid, is_used = store.uid() or "", bool(store.groups())
        if not is_used:
            _archive(run, uid)


def _put_by_earlier(run: RunDir, uid: str) -> None:
    """Archive another cluster of the same name whose process ended before it did so.

    Raises:
        RetryLater: that process has not ended yet.

    """
    if not run.state.is_file():
        return
    with contextlib.closing(ClusterStore(run.state)) as store:
        earlier = store.uid() or ""
    if earlier == uid:
        return
    if is_held(run):
        raise RetryLater(
            f"an earlier cluster {run.name} is still being deleted", after=_STILL_DELETED
        )
    _archive(run, earlier)


def _archive(run: RunDir, uid: str) -> None:
    home = run.path.parent.parent
    archive = deleted_dir(home, run.name, uid).path
    number = 1
    while archive.exists():
        number += 1
        archive = deleted_dir(home, run.name, f"{uid}.{number}").path
    archive.parent.mkdir(exist_ok=True)
    run.path.rename(archive)


def _rejection(scripts: LifecycleScripts | None) -> str:
    """Return why scripts cannot run on local machines; empty if they can."""
    if scripts is None or scripts.source.startswith("s3://"):
        return ""
    if scripts.source.startswith("https://"):
        return f"{scripts.source} cannot be fetched; expected s3://..., file://... or a directory"
    path = scripts_path(scripts.source)
    if not os.path.isdir(path):  # Path.is_dir would raise without permission
        return f"{path} is not a directory on the machine of the API server"
    if not os.path.isfile(path / scripts.on_create):
        return f"{scripts.on_create} not found in {path}"
    return ""


def _machine(run: RunDir, member: LocalMember) -> GroupMachine:
    provision = provision_of(run.node(member.name))
    state, message = provision.state, provision.message
    if member.is_leaving:
        state, message = MachineState.LEAVING, ""
    elif state is MachineState.RUNNING and member.record.phase is Phase.JOINING:
        state = MachineState.JOINING
    return GroupMachine(
        id=member.provider_id,
        name=member.name,
        state=state,
        launched_at=member.launched_at,
        message=message,
    )
