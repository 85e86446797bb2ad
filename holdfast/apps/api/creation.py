"""Clusters that the API creates: their records, and the reconciliation loop."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from types import ModuleType
from typing import Final

from holdfast.adapters.database.connection import Database, recover_file
from holdfast.adapters.database.records import DatabaseRecords
from holdfast.adapters.database.sessions import DatabaseSessions
from holdfast.adapters.local.layout import default_home
from holdfast.api.call import ClusterCreation
from holdfast.api.clusters import Cluster
from holdfast.api.created import CreatedClusterNodes, CreatedClusters
from holdfast.api.script_sources import limited_to
from holdfast.apps.api.adopted import Opener
from holdfast.apps.api.autoscaling import waiting_pods, with_autoscaling
from holdfast.apps.api.checkpoint_mirror import mirror_problem
from holdfast.apps.api.config import AlarmSource, ApiConfig
from holdfast.apps.api.fleet_clusters import FleetClusters
from holdfast.apps.api.local_clusters import ClusterSupervisors, LocalClusters, local_groups
from holdfast.apps.api.node_settings import labeled_nodes, with_settings
from holdfast.apps.api.policies import policies_of
from holdfast.apps.api.reconciliation import ReconciliationThread
from holdfast.apps.api.shared_fleet import SharedFleet
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import TargetPlatform, Where
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.engine.cluster_reconciler import ClusterPorts, ClusterReconciler, PollIntervals
from holdfast.model.clusters import DesiredCluster
from holdfast.model.errors import ConfigError
from holdfast.ports.cluster_nodes import Alarms, ClusterNodes
from holdfast.ports.machine_groups import MachineGroups
from holdfast.ports.machine_images import MachineImages

_LOCAL_INTERVALS: Final = PollIntervals(
    busy=timedelta(milliseconds=250), quiet=timedelta(seconds=1)
)
"""Polling interval of local machines, which boot within a second and cost no API call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineBackend:
    """Backend of the machines of created clusters."""

    groups: MachineGroups
    nodes: ClusterNodes
    supervisor: CreatedClusterNodes
    rejections: Callable[[DesiredCluster], Sequence[str]]
    intervals: PollIntervals
    images: MachineImages | None = None


class NoAlarms:
    """``Alarms`` without a source; requests that depend on alarms are refused."""

    def active_alarms(self, names: Sequence[str]) -> frozenset[str]:  # noqa: ARG002 - there are none
        """See ``Alarms.active_alarms``."""
        return frozenset()


def creation_of(
    config: ApiConfig, where: Where, shown: Opener, opened: ExitStack, report: Callable[[str], None]
) -> tuple[Opener, ClusterCreation, DatabaseSessions]:
    """Dependencies for creating clusters, in addition to the existing ones, and stored sessions.

    Args:
        config: configuration of the API.
        where: platform whose nodes it shows.
        shown: opens the existing clusters.
        opened: exit stack for resources kept open.
        report: prints a message.

    Raises:
        ConfigError: the database or the cluster cannot be found.
        BackendError: the database cannot be used.

    """
    database = opened.enter_context(closing(_database(config, report)))
    records = DatabaseRecords(database)
    problem = mirror_problem(config.checkpoint_mirror, where, records.all, report)
    backend = _machine_backend(config, where, opened)
    ports = ClusterPorts(
        records=records,
        groups=backend.groups,
        nodes=backend.nodes,
        alarms=_alarms(config),
        clock=SystemClock(),
        report=report,
        kubernetes=labeled_nodes(where, opened),
        pods=waiting_pods(where, opened, has_ec2=config.ec2 is not None),
        images=backend.images,
    )
    thread = ReconciliationThread(_reconciler(config, ports, backend), database.back_up_changes)
    thread.start()
    opened.enter_context(closing(thread))
    policies = policies_of(where, database, opened, report)

    def wake(cluster: str) -> None:
        thread.wake(cluster)
        if policies is not None:
            policies.thread.wake(cluster)

    creation = ClusterCreation(
        records=records,
        rejections=_rejections(config, where, backend),
        wake=wake,
        node_limit=config.node_limit,
        has_alarms=config.alarms is not AlarmSource.NONE,
        mirror_problem=problem,
        policies=None if policies is None else policies.records,
    )
    made = CreatedClusters(records, backend.supervisor)
    return lambda: _all(made, shown), creation, DatabaseSessions(database)


def _database(config: ApiConfig, report: Callable[[str], None]) -> Database:
    home = default_home()
    home.mkdir(parents=True, exist_ok=True)
    url = config.database or f"sqlite:///{home / 'api.db'}"
    restored = recover_file(url)
    if restored:
        report(restored)
    return Database(url, SystemClock())


def _reconciler(
    config: ApiConfig, ports: ClusterPorts, backend: MachineBackend
) -> ClusterReconciler:
    policy = ClusterPolicy(scale_down_after=config.scale_down_after)
    return ClusterReconciler(ports, policy, backend.intervals)


def _rejections(
    config: ApiConfig, where: Where, backend: MachineBackend
) -> Callable[[DesiredCluster], Sequence[str]]:
    rejections = with_settings(where, backend.rejections)
    rejections = with_autoscaling(where, rejections, has_ec2=config.ec2 is not None)
    return limited_to(config.script_sources, rejections)


@contextlib.contextmanager
def _all(made: CreatedClusters, shown: Opener) -> Iterator[Sequence[Cluster]]:
    created = made.all()
    names = {one.name for one in created}
    with shown() as others:
        yield [*created, *(one for one in others if one.name not in names)]


def _machine_backend(config: ApiConfig, where: Where, opened: ExitStack) -> MachineBackend:
    if where.place is TargetPlatform.LOCAL:
        if config.ec2 is not None:
            raise ConfigError(
                "ec2: EC2 machines join a Kubernetes or Slurm cluster; select it with --platform"
            )
        supervisors = opened.enter_context(closing(ClusterSupervisors(config.checkpoint_mirror)))
        clusters = LocalClusters(default_home())
        local = local_groups(default_home(), supervisors)
        return MachineBackend(
            groups=local,
            nodes=clusters,
            supervisor=clusters,
            rejections=local.rejections,
            intervals=_LOCAL_INTERVALS,
        )
    fleets = FleetClusters(opened.enter_context(closing(SharedFleet(where))))
    built = None
    if config.ec2 is not None:
        ec2 = _on_aws("holdfast.adapters.providers.ec2_machine_groups", "ec2")
        built = ec2.build(config.ec2, SystemClock())
    groups = built or fleets
    return MachineBackend(
        groups=groups,
        nodes=fleets,
        supervisor=fleets,
        rejections=groups.rejections,
        intervals=PollIntervals(),
        images=built,
    )


def _alarms(config: ApiConfig) -> Alarms:
    if config.alarms is AlarmSource.NONE:
        return NoAlarms()
    alarms = _on_aws("holdfast.adapters.telemetry.alarms", "alarms")
    found: Alarms = alarms.CloudWatchAlarms()
    return found


def _on_aws(module: str, key: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"{key}: {missing.name} is not installed, and AWS access requires it: pip install "
            "'holdfast[aws]'"
        ) from missing
