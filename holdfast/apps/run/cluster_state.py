"""Reads the cluster API's record of a local cluster, for jobs that need it."""

from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from holdfast.adapters.local.cluster_store import ClusterStore
from holdfast.adapters.local.layout import cluster_dir
from holdfast.apps.clock import SystemClock
from holdfast.model.clusters import DesiredCluster
from holdfast.model.errors import BackendError, ConfigError
from holdfast.model.sagemaker import ClusterStatus

_DATABASE: Final = "holdfast.adapters.database"
_DESCRIBE: Final = "holdfast clusters describe"

_LOST: Final = (ClusterStatus.FAILED, ClusterStatus.ROLLING_BACK, ClusterStatus.DELETING)
"""States in which a cluster without nodes will get none."""


def node_problem(home: Path, name: str) -> str:
    """Return why a cluster without nodes accepts no job; empty if it has or gets nodes."""
    with closing(ClusterStore(cluster_dir(home, name).state)) as store:
        if store.occupancy().total:
            return ""
        uid = store.uid()
    cluster = _recorded(home, name)
    if cluster is not None and cluster.uid == (uid or ""):
        if cluster.status is ClusterStatus.CREATING:
            return ""
        if cluster.status in _LOST:
            why = f": {cluster.failure}" if cluster.failure else ""
            return f"the cluster {name} is {cluster.status}{why}; see: {_DESCRIBE} {name}"
    return (
        f"the cluster {name} has no nodes; see: {_DESCRIBE} {name}; add nodes with: holdfast "
        f"clusters scale {name} GROUP COUNT"
    )


def is_creating(home: Path, name: str) -> bool:
    """Whether a cluster is being created, according to the default database of the API."""
    cluster = _recorded(home, name)
    return cluster is not None and cluster.status is ClusterStatus.CREATING


def creation_failure(home: Path, name: str, uid: str) -> str | None:
    """Return why the creation of a cluster failed; None if it did not."""
    cluster = _recorded(home, name)
    if cluster is None or cluster.uid != uid:
        return None
    is_failed = cluster.status in (ClusterStatus.FAILED, ClusterStatus.ROLLING_BACK)
    return cluster.failure if is_failed else None


def _recorded(home: Path, name: str) -> DesiredCluster | None:
    """Return the record of a cluster; None if the default database does not have it."""
    path = home / "api.db"
    if not path.is_file():
        return None
    try:
        connection = import_module(f"{_DATABASE}.connection")
        records = import_module(f"{_DATABASE}.records")
        with closing(connection.Database(f"sqlite:///{path}", SystemClock())) as database:
            stored = records.DatabaseRecords(database).load(name)
    except (ModuleNotFoundError, BackendError, ConfigError):
        return None
    return None if stored is None else cast("DesiredCluster", stored.cluster)
