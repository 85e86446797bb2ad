"""Loop that brings clusters to their desired state: read, decide, write, act."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.autoscaling import shapes
from holdfast.decisions.cluster_members import ObservedCluster
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.decisions.clusters import ClusterStep, decide
from holdfast.kit.pauses import Pause
from holdfast.model.cluster_actions import (
    ClusterAction,
    Configure,
    Delete,
    Ensure,
    GroupAction,
    Remove,
    Renew,
    Scale,
)
from holdfast.model.clusters import DesiredCluster, DesiredGroup, GroupMachine, GroupStage
from holdfast.model.errors import BackendError, ProviderError, RetryLater
from holdfast.model.node_settings import KubernetesConfig
from holdfast.model.pod_demand import PodDemand
from holdfast.model.sagemaker import ClusterStatus
from holdfast.ports.clock import Clock
from holdfast.ports.cluster_nodes import Alarms, ClusterNodes
from holdfast.ports.cluster_records import ClusterRecords, StoredCluster
from holdfast.ports.kubernetes_nodes import KubernetesNodes
from holdfast.ports.machine_groups import MachineGroups
from holdfast.ports.machine_images import MachineImages
from holdfast.ports.pod_demand import PodScheduling

AFTER_ERROR: Final = timedelta(seconds=5)
"""Delay after the machine provider could not be reached."""

_NO_PODS: Final = (
    "this server does not read pods; start it with --platform kubernetes and with [ec2] in its "
    "configuration, or set AutoScaling to Disable"
)

_QUIET: Final = (ClusterStatus.IN_SERVICE, ClusterStatus.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPorts:
    """Ports of the loop."""

    records: ClusterRecords
    groups: MachineGroups
    nodes: ClusterNodes
    alarms: Alarms
    clock: Clock
    report: Callable[[str], None]
    """Receives a message for each failure."""

    kubernetes: KubernetesNodes | None = None
    """Labels and taints of the nodes; None if they are not nodes of Kubernetes."""

    pods: PodScheduling | None = None
    """Pods that wait for nodes; None if groups cannot scale themselves."""

    images: MachineImages | None = None
    """Images of new machines; None if groups cannot be patched automatically."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollIntervals:
    """Intervals between two rounds of a cluster."""

    busy: timedelta = timedelta(seconds=5)
    """While the cluster changes."""

    quiet: timedelta = timedelta(seconds=15)
    """While the cluster is in its desired state."""


class ClusterReconciler:
    """Keeps no state that a restart would miss, and may be killed between any two calls."""

    def __init__(
        self, ports: ClusterPorts, policy: ClusterPolicy, intervals: PollIntervals
    ) -> None:
        self._ports = ports
        self._policy = policy
        self._intervals = intervals
        self._pauses: dict[str, Pause] = {}  # by cluster; they spare a throttled provider
        self._reported: dict[str, str] = {}  # reports each failure once

    def step(self) -> datetime:
        """Run one round; return the time of the next, unless ``wake`` is called before."""
        now = self._ports.clock.now()
        wake_at = now + self._intervals.quiet
        try:
            names = self._ports.records.names()
        except BackendError as error:
            self._report("", error)
            return now + AFTER_ERROR
        for name in names:
            pause = self._pauses.setdefault(name, Pause(now, now))
            if pause.is_over(now):
                pause = self._poll(name)
                if name in self._pauses:  # no request came meanwhile
                    self._pauses[name] = pause
            wake_at = min(wake_at, pause.until if name in self._pauses else now)
        return wake_at

    def wake(self, name: str) -> None:
        """Reconcile a cluster at once, after a request for it."""
        self._pauses.pop(name, None)

    def _poll(self, name: str) -> Pause:
        now = self._ports.clock.now()
        try:
            stored = self._ports.records.load(name)
            if stored is None:
                return Pause(now, now)
            step = decide(stored.cluster, stored.members, self._observed(stored), self._policy, now)
            if not self._is_saved(stored, step):
                return Pause(now, now)
            for action in step.actions:
                self._carry_out(name, action)
        except RetryLater as error:
            self._report(name, error)
            return Pause(now, now + error.after)
        except (BackendError, ProviderError) as error:
            self._report(name, error)
            return Pause(now, now + AFTER_ERROR)
        self._reported.pop(name, None)
        is_quiet = step.cluster is not None and step.cluster.status in _QUIET and not step.actions
        return Pause(now, now + (self._intervals.quiet if is_quiet else self._intervals.busy))

    def _observed(self, stored: StoredCluster) -> ObservedCluster:
        groups = stored.cluster.groups
        alarms = [
            alarm
            for one in groups
            if one.update is not None and one.update.is_active
            for alarm in one.update.alarms
        ]
        settings = self._settings(stored)  # before the pods: no pod is new on a node with a taint
        machines, failures = self._machines(stored)
        return ObservedCluster(
            machines=machines,
            failures=failures,
            health=self._ports.nodes.health(stored.cluster.name),
            alarms=self._ports.alarms.active_alarms(alarms) if alarms else frozenset(),
            settings=settings,
            demand=self._demand(stored.cluster),
            images=self._images(stored.cluster),
        )

    def _machines(
        self, stored: StoredCluster
    ) -> tuple[Mapping[str, Sequence[GroupMachine]], Mapping[str, str]]:
        """Return the machines by group, and why those of some groups are as they were before."""
        found: dict[str, Sequence[GroupMachine]] = {}
        failures: dict[str, str] = {}
        for group in stored.cluster.groups:
            try:
                found[group.name] = tuple(self._ports.groups.machines(group.made_of.key))
            except RetryLater:
                raise
            except ProviderError as error:
                self._report(group.made_of.key, error)
                failures[group.name] = str(error)
                found[group.name] = tuple(
                    one.machine
                    for one in stored.members
                    if one.group == group.name and one.machine is not None
                )
            else:
                self._reported.pop(group.made_of.key, None)
        return found, failures

    def _images(self, cluster: DesiredCluster) -> Mapping[str, str]:
        """Return the newest images; a group whose image cannot be found is only not patched."""
        images, found = self._ports.images, {}
        for one in cluster.groups if images is not None else ():
            if images is None or one.patching is None or one.is_going:
                continue
            try:
                found[one.name] = images.newest_image(one.made_of)
            except ProviderError as error:
                self._report(f"{one.made_of.key}: AutoPatchConfig", error)
        return found

    def _demand(self, cluster: DesiredCluster) -> PodDemand:
        """Return the waiting pods; if they cannot be read, only the scaling of groups stops."""
        pods = self._ports.pods
        if not cluster.is_autoscaled and not _is_patched(cluster):
            return PodDemand()
        if pods is None:
            return PodDemand(failure=_NO_PODS)
        try:
            return pods.demand(shapes(cluster))
        except BackendError as error:
            return PodDemand(failure=str(error))

    def _settings(self, stored: StoredCluster) -> Mapping[str, KubernetesConfig]:
        kubernetes = self._ports.kubernetes
        desired = [one.made_of.kubernetes for one in stored.cluster.groups]
        owned = [one.settings.owned for one in stored.members]
        is_unused = all(one.is_empty for one in (*desired, *owned))
        is_tainted = stored.cluster.is_autoscaled or _is_patched(stored.cluster)
        if kubernetes is None or (is_unused and not is_tainted):
            return {}
        return kubernetes.settings()

    def _is_saved(self, stored: StoredCluster, step: ClusterStep) -> bool:
        is_changed = (
            step.cluster_events or step.cluster != stored.cluster or step.members != stored.members
        )
        return not is_changed or self._ports.records.save(
            stored, step.cluster, step.members, step.cluster_events
        )

    def _carry_out(self, cluster: str, action: ClusterAction) -> None:
        if isinstance(action, Configure):
            if self._ports.kubernetes is not None:
                self._ports.kubernetes.configure(action.changes)
            return
        key = action.group.key if isinstance(action, Ensure) else action.group
        try:
            self._act(cluster, action)
        except RetryLater:
            raise
        except ProviderError as error:
            why = str(error)
            self._note(cluster, key, lambda group: replace(group, failure=why))
            self._report(cluster, error)
            return
        match action:
            case Ensure(made_of):
                self._note(cluster, key, lambda group: _reported(group, GroupStage.MADE, made_of))
            case Delete():
                self._note(cluster, key, lambda group: replace(group, stage=GroupStage.DELETED))
            case _:
                self._note(cluster, key, lambda group: replace(group, failure=""))

    def _act(self, cluster: str, action: GroupAction) -> None:
        groups = self._ports.groups
        match action:
            case Ensure(group):
                groups.ensure(group)
            case Scale(key, count):
                groups.scale(key, count)
            case Remove(key, ids):
                groups.remove(key, ids)
            case Delete(key):
                groups.delete(key)
            case Renew(key, ids):
                watched = self._ports.nodes.renew(cluster, ids)
                if others := [one for one in ids if one not in watched]:
                    groups.remove(key, others)

    def _note(self, name: str, key: str, make: Callable[[DesiredGroup], DesiredGroup]) -> None:
        """Record what was sent to the provider; after a concurrent change, it is sent again."""
        stored = self._ports.records.load(name)
        if stored is None:
            return
        groups = tuple(
            make(one) if one.made_of.key == key else one for one in stored.cluster.groups
        )
        changed: DesiredCluster = replace(stored.cluster, groups=groups)
        if changed != stored.cluster:
            self._ports.records.save(stored, changed, stored.members, ())

    def _report(self, name: str, error: Exception) -> None:
        reported = f"{name}: {error}" if name else str(error)
        if self._reported.get(name) != reported:
            self._reported[name] = reported
            self._ports.report(reported)


def _is_patched(cluster: DesiredCluster) -> bool:
    return any(one.update is not None and one.update.is_patch for one in cluster.groups)


def _reported(group: DesiredGroup, stage: GroupStage, made_of: object) -> DesiredGroup:
    """Return the group once the provider has it, unless its specification changed meanwhile."""
    if group.made_of != made_of or group.stage is not GroupStage.NEW:
        return group
    return replace(group, stage=stage, failure="")
