"""Nodes of a requested cluster: which exist, and the status of each."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.node_settings import observed
from holdfast.model.clusters import (
    ClusterEvent,
    DesiredCluster,
    DesiredGroup,
    GroupMachine,
    MachineState,
    Member,
    NodeHealth,
)
from holdfast.model.names import PENDING_PATCH, SCALE_DOWN
from holdfast.model.node_settings import KubernetesConfig, Taint
from holdfast.model.pod_demand import PodDemand
from holdfast.model.sagemaker import EventLevel, InstanceStatus

_SPACE: Final = uuid.UUID("5d0f3c1e-6a59-4b7e-9f0a-2f4f1c7d8e21")
"""UUID namespace of the ids of cluster events: an event that is reported twice has the same id."""


_PATCHED: Final = Taint(key=PENDING_PATCH, effect="NoSchedule")
_RETIRING: Final = Taint(key=SCALE_DOWN, effect="NoSchedule")
_UNWATCHED: Final = "No controller reports on the health of this node."


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """Observed state of a cluster."""

    machines: Mapping[str, Sequence[GroupMachine]]
    """Machines by the name of their group."""

    health: Mapping[str, NodeHealth]
    """Node health by machine id; a machine is missing if no controller watches its node."""

    alarms: frozenset[str] = frozenset()
    """Names of the alarms in state ALARM."""

    settings: Mapping[str, KubernetesConfig] = field(default_factory=dict)
    """Labels and taints of Kubernetes nodes by machine id; empty if none are requested or owned."""

    demand: PodDemand = field(default_factory=PodDemand)
    """Pods that wait, and the nodes that they could use; empty if no group scales itself or is
    patched."""

    failures: Mapping[str, str] = field(default_factory=dict)
    """Why the provider refused to list the machines of a group, by the name of the group; its
    machines are those of the last round then."""

    images: Mapping[str, str] = field(default_factory=dict)
    """Newest image of each group that is patched automatically, as far as it is known."""


class ClusterEventCollector:
    """Collects the events of one cluster at one time."""

    def __init__(self, cluster: DesiredCluster, now: datetime) -> None:
        self._cluster = cluster
        self._now = now
        self.reported: list[ClusterEvent] = []

    def cluster(self, what: str, why: str = "") -> None:
        """Add an event of the cluster; ``{c}`` in the text is its name.

        Args:
            what: text of the event.
            why: cause of a failure, appended verbatim; empty for a success.

        """
        self._report(what, why)

    def group(
        self, group: str, what: str, why: str = "", level: EventLevel = EventLevel.INFO
    ) -> None:
        """Add an event of an instance group; ``{g}`` in the text is its name.

        Args:
            group: name of the group.
            what: text of the event.
            why: as in ``cluster``.
            level: level of an event that is no failure.

        """
        self._report(what, why, level, group=group)

    def member(self, member: Member, what: str, why: str = "") -> None:
        """Add an event of a node; ``{i}`` in the text is the id of its machine."""
        machine = member.machine.id if member.machine is not None else ""
        self._report(
            what, why, group=member.group, instance_id=machine, logical_id=member.logical_id
        )

    def _report(self, what: str, why: str, level: EventLevel = EventLevel.INFO, **of: str) -> None:
        text = what.format(c=self._cluster.name, g=of.get("group"), i=of.get("instance_id"))
        text = f"{text}: {why}" if why else text
        seed = "|".join((self._cluster.name, self._now.isoformat(), text, of.get("logical_id", "")))
        self.reported.append(
            ClusterEvent(
                id=str(uuid.uuid5(_SPACE, seed)),
                at=self._now + timedelta(microseconds=len(self.reported)),  # keeps their order
                description=text,
                level=EventLevel.ERROR if why else level,
                **of,
            )
        )


def present(
    cluster: DesiredCluster,
    members: Sequence[Member],
    seen: ObservedCluster,
    now: datetime,
    collector: ClusterEventCollector,
) -> tuple[Member, ...]:
    """Return the current nodes: known ones, new ones, and places that still wait for a machine.

    Places beyond the target size of a group are dropped.
    """
    groups = {group.name: group for group in cluster.groups}
    known = {one.machine.id: one for one in members if one.machine is not None}
    waiting = [one for one in members if one.machine is None]
    found: list[Member] = []
    for group, machines in seen.machines.items():
        for machine in machines:
            member = known.pop(machine.id, None)
            if member is None:
                member = _joined(machine, group, waiting, now)
                collector.member(
                    member, "Instance creation of {i} started in Cluster {c} and IG {g}"
                )
            found.append(_judged(member, machine, groups.get(group), seen, now, collector))
    for deleted in known.values():
        collector.member(deleted, "Instance deletion of {i} in Cluster {c} and IG {g} completed")
    found += _places_left(waiting, found, groups)
    return tuple(sorted(found, key=lambda one: (one.group, one.added_at, one.logical_id)))


def _joined(machine: GroupMachine, group: str, waiting: list[Member], now: datetime) -> Member:
    """Return the node for a new machine; it takes a waiting place, if there is one."""
    for place in waiting:
        if place.group == group:
            waiting.remove(place)
            return replace(place, machine=machine)
    return Member(
        logical_id=f"{group}-{machine.id.removeprefix('i-')}",
        group=group,
        added_at=now,
        status_since=now,
        machine=machine,
    )


def _judged(
    member: Member,
    machine: GroupMachine,
    group: DesiredGroup | None,
    seen: ObservedCluster,
    now: datetime,
    collector: ClusterEventCollector,
) -> Member:
    status, message = _status(machine, group, seen.health.get(machine.id))
    desired = node_settings(group, member)
    settings = observed(member.settings, desired, seen.settings.get(machine.id, KubernetesConfig()))
    judged = replace(member, machine=machine, message=message, settings=settings)
    if settings.conflict and settings.conflict != member.settings.conflict:
        what = "Labels and taints of {i} in Cluster {c} and IG {g} were not applied"
        collector.member(judged, what, settings.conflict)
    if status is not member.status:
        judged = replace(judged, status=status, status_since=now)
        _report_status(judged, collector)
    return replace(judged, released=judged.released or status is InstanceStatus.RUNNING)


def desired_settings(group: DesiredGroup | None) -> KubernetesConfig:
    """Return the labels and taints that the nodes of a group should have."""
    if group is None or group.is_going:
        return KubernetesConfig()
    return group.made_of.kubernetes


def node_settings(group: DesiredGroup | None, member: Member) -> KubernetesConfig:
    """Return the labels and taints that one node of a group should have."""
    config = desired_settings(group)
    if group is None or group.is_going or member.machine is None:
        return config
    update = group.update
    is_patched = (
        update is not None and update.is_patch and member.machine.launched_at < update.began_at
    )
    taints = [
        *config.taints,
        *((_RETIRING,) if member.is_retiring else ()),
        *((_PATCHED,) if is_patched else ()),
    ]
    return replace(config, taints=tuple(taints))


def _status(
    machine: GroupMachine, group: DesiredGroup | None, health: NodeHealth | None
) -> tuple[InstanceStatus, str]:
    match machine.state:
        case MachineState.LEAVING:
            return InstanceStatus.SHUTTING_DOWN, machine.message
        case MachineState.FAILED:
            return InstanceStatus.FAILURE, machine.message
    update = group.update if group is not None else None
    if update is not None and update.is_active and machine.id in update.going:
        return InstanceStatus.SYSTEM_UPDATING, "Software update pending."
    if machine.state is MachineState.JOINING:
        return InstanceStatus.PENDING, machine.message
    if health is None:
        return InstanceStatus.RUNNING, _UNWATCHED
    return health.status, health.message


def _report_status(member: Member, collector: ClusterEventCollector) -> None:
    """Report the status changes of a node that people wait for or are alerted on."""
    match member.status:
        case InstanceStatus.RUNNING if not member.released:
            collector.member(
                member, "Instance creation of {i} in Cluster {c} and IG {g} completed successfully"
            )
        case InstanceStatus.FAILURE:
            what = "Instance creation of {i} in Cluster {c} and IG {g} failed"
            collector.member(member, what, member.message or "no reason was given")
        case InstanceStatus.SHUTTING_DOWN:
            what = "Termination of EC2 Instance {i} is currently in progress in Cluster {c} and IG "
            collector.member(member, what + "{g}")


def _places_left(
    waiting: Sequence[Member], found: Sequence[Member], groups: Mapping[str, DesiredGroup]
) -> Iterator[Member]:
    for group in groups.values():
        taken = sum(
            one.group == group.name and one.status is not InstanceStatus.SHUTTING_DOWN
            for one in found
        )
        places = [one for one in waiting if one.group == group.name]
        yield from places[: max(0, group.target - taken)]
