"""Sizes of groups that scale themselves: nodes for waiting pods, and none that stay idle."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from holdfast.decisions.cluster_members import (
    ClusterEventCollector,
    ObservedCluster,
    desired_settings,
)
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.decisions.pod_packing import Extension, Packing, Place, holds, packed
from holdfast.kit.units import format_duration
from holdfast.model.clusters import (
    AutoScaling,
    DesiredCluster,
    DesiredGroup,
    GroupStage,
    MachineState,
    Member,
)
from holdfast.model.names import SCALE_DOWN
from holdfast.model.node_settings import KubernetesConfig
from holdfast.model.pod_demand import NodeLoad, NodeShape, WaitingPod
from holdfast.model.sagemaker import ClusterStatus, InstanceStatus

_STEADY: Final = (ClusterStatus.IN_SERVICE, ClusterStatus.SYSTEM_UPDATING)


@dataclass(frozen=True, slots=True)
class _Round:
    """What all groups of a cluster are scaled by at one time."""

    seen: ObservedCluster
    policy: ClusterPolicy
    now: datetime

    def node(self, member: Member) -> NodeLoad | None:
        """Kubernetes node of a member; None if it has not joined."""
        machine = member.machine
        return None if machine is None else self.seen.demand.nodes.get(machine.id)

    def in_repair(self, member: Member) -> bool:
        """Whether the machine of a member is under repair."""
        machine = member.machine
        health = None if machine is None else self.seen.health.get(machine.id)
        return health is not None and health.in_repair

    def is_idle(self, group: DesiredGroup, member: Member) -> bool:
        """Whether a node takes pods and has none."""
        node = self.node(member)
        return (
            node is not None
            and node.is_open
            and not node.pods
            and member.status is InstanceStatus.RUNNING
            and not self.in_repair(member)
            and _stays(group, member)
        )

    def is_expected(self, group: DesiredGroup, member: Member) -> bool:
        """Whether a machine will join soon."""
        machine = member.machine
        if machine is None or machine.state is MachineState.FAILED or not _stays(group, member):
            return False
        node = self.node(member)
        is_young = self.now - machine.launched_at < self.policy.join_timeout
        has_joined = node is not None and node.is_open
        return is_young and not has_joined and not self.in_repair(member)


def shapes(cluster: DesiredCluster) -> dict[str, NodeShape]:
    """Return the nodes that could be added, by group; none if the groups have fixed sizes."""
    if not cluster.is_autoscaled:
        return {}
    return {one.name: _shape(one) for one in cluster.groups if not one.is_going}


def scaled_back(settings: AutoScaling | None, groups: Sequence[DesiredGroup]) -> AutoScaling | None:
    """Return the setting of a cluster whose groups were rolled back."""
    if settings is None:
        return None
    return replace(settings, is_enabled=any(one.most is not None for one in groups))


def autoscaled(
    cluster: DesiredCluster,
    members: Sequence[Member],
    seen: ObservedCluster,
    policy: ClusterPolicy,
    now: datetime,
    collector: ClusterEventCollector,
) -> tuple[DesiredCluster, tuple[Member, ...]]:
    """Return the cluster with the present sizes of its groups, and its nodes.

    A group grows at once by the nodes that waiting pods need, up to its limit. It shrinks, down to
    its minimum, by nodes that were idle for ``scale_down_after``, while no pod waits for it. Such a
    node first gets a taint, and is removed when it is still idle after that.
    """
    settings = cluster.autoscaling
    if settings is None or not settings.is_enabled or cluster.status not in _STEADY:
        return cluster, tuple(_kept(one) for one in members)
    failure = seen.demand.failure or "; ".join(
        f"{one.name}: {one.failure}" for one in cluster.groups if one.failure
    )
    if failure and failure != settings.failure:
        collector.cluster("Scaling of Cluster {c} failed", failure)
    cluster = replace(cluster, autoscaling=replace(settings, failure=failure))
    if seen.demand.failure:
        return cluster, tuple(_kept(one) for one in members)
    at = _Round(seen, policy, now)
    by_group = {
        group.name: [one for one in members if one.group == group.name] for group in cluster.groups
    }
    learned = [_learned(at, one, by_group[one.name]) for one in cluster.groups]
    packing = _packing(at, learned, by_group)
    groups: list[DesiredGroup] = []
    changed: dict[str, Member] = {}
    for group in learned:
        nodes = [_observed(at, group, one, packing) for one in by_group[group.name]]
        scaled, nodes = _scaled(at, group, nodes, packing.added.get(group.name, ()), collector)
        groups.append(scaled)
        changed |= {one.logical_id: one for one in nodes}
    after = tuple(changed.get(one.logical_id, _kept(one)) for one in members)
    return replace(cluster, groups=tuple(groups)), after


def _kept(member: Member) -> Member:
    """Return a node that no group may remove by itself now."""
    if member.idle_since is None and not member.is_retiring:
        return member
    return replace(member, idle_since=None, is_retiring=False)


def _stays(group: DesiredGroup, member: Member) -> bool:
    machine = member.machine
    return (
        machine is not None
        and machine.state is not MachineState.LEAVING
        and machine.id not in group.leaving
    )


def _scales(group: DesiredGroup) -> bool:
    is_updated = group.update is not None and group.update.is_active
    return group.most is not None and group.stage is GroupStage.MADE and not is_updated


def _shape(group: DesiredGroup) -> NodeShape:
    """Return what a node of a group offers, as far as it is known."""
    known, config = group.shape or NodeShape(), desired_settings(group)
    named = {(one.key, one.effect) for one in config.taints}
    others = [one for one in known.config.taints if (one.key, one.effect) not in named]
    return replace(
        known,
        instance_type=group.made_of.instance_type,
        config=KubernetesConfig(
            labels={**known.config.labels, **config.labels}, taints=(*others, *config.taints)
        ),
    )


def _learned(at: _Round, group: DesiredGroup, members: Sequence[Member]) -> DesiredGroup:
    """Return a group with the shape of its nodes."""
    for one in members:
        node = at.node(one)
        if node is not None and node.is_open and not one.is_retiring and not at.in_repair(one):
            return replace(group, shape=node.shape)
    return group


def _packing(
    at: _Round, groups: Sequence[DesiredGroup], members: Mapping[str, Sequence[Member]]
) -> Packing:
    places: list[Place] = []
    retiring: list[Place] = []
    extensions = []
    for group in groups:
        resources = _shape(group).resources
        for one in members[group.name]:
            node = at.node(one)
            if one.machine is not None and node is not None and at.is_idle(group, one):
                place = Place(key=one.machine.id, resources=node.shape.resources)
                (retiring if one.is_retiring else places).append(place)
        expected = sum(at.is_expected(group, one) for one in members[group.name])
        missing = group.target - sum(_stays(group, one) for one in members[group.name])
        is_overdue = missing > 0 and _is_overdue(at, group)
        expected += 0 if is_overdue else max(0, missing)
        places += [Place(key=group.name, resources=resources)] * expected
        if _scales(group) and not is_overdue:
            room = max(0, group.limit - group.target)
            extensions.append(Extension(group=group.name, resources=resources, room=room))
    return packed(at.seen.demand.waiting, [*places, *retiring], extensions)


def _is_overdue(at: _Round, group: DesiredGroup) -> bool:
    """Return whether machines of a group should have been launched by now."""
    return group.scaled_at is not None and at.now - group.scaled_at >= at.policy.join_timeout


def _observed(at: _Round, group: DesiredGroup, member: Member, packing: Packing) -> Member:
    """Return a node with the time since which it is idle; a pod needs a node that it would use."""
    if not at.is_idle(group, member):
        return _kept(member)
    is_needed = member.machine is not None and member.machine.id in packing.used
    return replace(
        member,
        idle_since=member.idle_since or at.now,
        is_retiring=member.is_retiring and not is_needed,
    )


def _scaled(
    at: _Round,
    group: DesiredGroup,
    members: Sequence[Member],
    added: Sequence[WaitingPod],
    collector: ClusterEventCollector,
) -> tuple[DesiredGroup, list[Member]]:
    """Return a group with its new size, and its nodes with those that it is about to remove."""
    if not _scales(group):
        return group, [_kept(one) for one in members]
    if added:
        grown = replace(group, target=group.target + len(added), scaled_at=at.now)
        example = added[0].name
        collector.group(
            group.name,
            f"Scaling IG {{g}} in Cluster {{c}} from {group.target} to {grown.target} nodes for "
            f"pods that wait, such as {example}",
        )
        return grown, [replace(one, is_retiring=False) for one in members]
    if any(_wants(group, pod) for pod in at.seen.demand.waiting):
        return group, [replace(one, is_retiring=False) for one in members]
    return _shrunk(at, group, members, collector)


def _wants(group: DesiredGroup, pod: WaitingPod) -> bool:
    """Return whether a node of a group could take a pod."""
    return group.name in pod.fits and holds(_shape(group).resources, pod)


def _shrunk(
    at: _Round, group: DesiredGroup, members: Sequence[Member], collector: ClusterEventCollector
) -> tuple[DesiredGroup, list[Member]]:
    """Return a group for which no pod waits, without nodes that stay idle."""
    staying = sum(_stays(group, one) for one in members)
    if staying < group.target:
        is_old = group.scaled_at is None or at.now - group.scaled_at >= at.policy.scale_down_after
        least = max(group.minimum, staying)
        fewer = replace(group, target=min(group.target, least)) if is_old else group
        return fewer, [replace(one, is_retiring=False) for one in members]
    room = max(0, group.target - group.minimum)
    retiring = set(list(_retiring(at, group, members))[:room])
    marked = [replace(one, is_retiring=one.logical_id in retiring) for one in members]
    before = {one.logical_id for one in members if one.is_retiring}
    removed = tuple(
        one.machine.id
        for one in marked
        if one.machine is not None and one.logical_id in before & retiring and _is_tainted(one)
    )
    if not removed:
        return group, marked
    target = group.target - len(removed)
    collector.group(
        group.name,
        f"Scaling IG {{g}} in Cluster {{c}} from {group.target} to {target} nodes: "
        f"{', '.join(removed)} idle for {format_duration(at.policy.scale_down_after)}",
    )
    smaller = replace(group, target=target, leaving=(*group.leaving, *removed))
    return smaller, [
        _kept(one) if one.machine is not None and one.machine.id in removed else one
        for one in marked
    ]


def _retiring(at: _Round, group: DesiredGroup, members: Sequence[Member]) -> Iterator[str]:
    """Yield the nodes to remove, those that are already retiring first, then the longest idle.

    No further one retires while machines of the group join or leave.
    """
    is_settled = not group.leaving and not any(at.is_expected(group, one) for one in members)
    idle = [(one.idle_since, one) for one in members if one.idle_since is not None]
    ordered = sorted(idle, key=lambda it: (not it[1].is_retiring, it[0], it[1].logical_id))
    for since, one in ordered:
        is_due = at.now - since >= at.policy.scale_down_after
        if one.is_retiring or (is_settled and is_due):
            yield one.logical_id


def _is_tainted(member: Member) -> bool:
    """Return whether the node of a retiring member no longer takes pods."""
    return any(one.key == SCALE_DOWN for one in member.settings.current.taints)
