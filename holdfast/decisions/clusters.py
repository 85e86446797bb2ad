"""Next step of a requested cluster, from its desired and its observed state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.decisions.autoscaling import autoscaled, scaled_back
from holdfast.decisions.cluster_members import (
    ClusterEventCollector,
    ObservedCluster,
    desired_settings,
    node_settings,
    present,
)
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.decisions.node_settings import is_applied, planned
from holdfast.decisions.patching import patched
from holdfast.decisions.scheduled_updates import next_run, with_due_updates
from holdfast.decisions.software_update import advanced, renewals
from holdfast.model.cluster_actions import ClusterAction, Configure, Delete, Ensure, Remove, Scale
from holdfast.model.clusters import (
    ClusterEvent,
    DesiredCluster,
    DesiredGroup,
    GroupMachine,
    GroupStage,
    KnownGoodGroup,
    MachineState,
    Member,
)
from holdfast.model.sagemaker import ClusterStatus, InstanceStatus, UpdateStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStep:
    """New state of a cluster, and the actions to take for it."""

    cluster: DesiredCluster | None
    """None once the cluster is deleted."""

    members: tuple[Member, ...]
    actions: tuple[ClusterAction, ...]
    cluster_events: tuple[ClusterEvent, ...]


def decide(
    cluster: DesiredCluster,
    members: Sequence[Member],
    seen: ObservedCluster,
    policy: ClusterPolicy,
    now: datetime,
) -> ClusterStep:
    """Choose the actions for a cluster now.

    The step follows from the arguments only, so a step whose actions were not or only partly
    carried out is decided again.
    """
    collector = ClusterEventCollector(cluster, now)
    there = present(cluster, members, seen, now, collector)
    by_group = _by_group(cluster, there)
    groups = [
        advanced(_cleared(group, seen), by_group[group.name], seen, policy, now, collector)
        for group in cluster.groups
    ]
    groups = [
        one for one in groups if one.stage is not GroupStage.DELETED or seen.machines[one.name]
    ]
    for deleted in {one.name for one in cluster.groups} - {one.name for one in groups}:
        collector.group(
            deleted, "Instance Group {g} deletion in Cluster {c} completed successfully"
        )
    judged = _judged(replace(cluster, groups=tuple(groups)), by_group, policy, now, collector)
    if judged is not None:
        judged = with_due_updates(judged, there, policy, now, collector)
        judged = patched(judged, there, seen, policy, now, collector)
        judged, there = autoscaled(judged, there, seen, policy, now, collector)
        by_group = _by_group(judged, there)
    actions: list[ClusterAction] = []
    recorded: dict[str, Member] = {}
    settled: list[DesiredGroup] = []
    for group in judged.groups if judged is not None else ():
        configured, changes = _configured(group, by_group[group.name], seen)
        recorded |= {one.logical_id: one for one in configured}
        due = _actions(group, by_group[group.name], seen, policy, now)
        settled.append(group if due else replace(group, failure=""))
        actions += [*changes, *due]
    return ClusterStep(
        cluster=replace(judged, groups=tuple(settled)) if judged is not None else None,
        members=tuple(recorded.get(one.logical_id, one) for one in there)
        if judged is not None
        else (),
        actions=tuple(actions),
        cluster_events=tuple(collector.reported),
    )


def _by_group(cluster: DesiredCluster, members: Sequence[Member]) -> dict[str, list[Member]]:
    return {
        group.name: [one for one in members if one.group == group.name] for group in cluster.groups
    }


def _cleared(group: DesiredGroup, seen: ObservedCluster) -> DesiredGroup:
    """Return the group without leaving machines that no longer exist, and why they are old."""
    there = {one.id for one in seen.machines[group.name]}
    return replace(
        group,
        leaving=tuple(one for one in group.leaving if one in there),
        listing_failure=seen.failures.get(group.name, ""),
    )


def _judged(
    cluster: DesiredCluster,
    members: Mapping[str, Sequence[Member]],
    policy: ClusterPolicy,
    now: datetime,
    collector: ClusterEventCollector,
) -> DesiredCluster | None:
    """Return the cluster with its current status; None if it is deleted."""
    match cluster.status:
        case ClusterStatus.DELETING:
            if not cluster.groups:
                collector.cluster("Cluster {c} deletion completed successfully")
                return None
            return replace(cluster, groups=tuple(_leaving(one) for one in cluster.groups))
        case ClusterStatus.CREATING | ClusterStatus.UPDATING:
            return _provisioned(cluster, members, policy, now, collector)
        case ClusterStatus.ROLLING_BACK if all(
            _is_settled(group, members[group.name]) for group in cluster.groups
        ):
            is_new = all(group.before is None for group in cluster.groups)
            status = ClusterStatus.FAILED if is_new else ClusterStatus.IN_SERVICE
            return replace(cluster, status=status)
        case ClusterStatus.SYSTEM_UPDATING:
            return _updated(cluster)
    return cluster


def _provisioned(
    cluster: DesiredCluster,
    members: Mapping[str, Sequence[Member]],
    policy: ClusterPolicy,
    now: datetime,
    collector: ClusterEventCollector,
) -> DesiredCluster:
    """Return a cluster under creation or update: completed, failed, or still in progress."""
    what = "creation" if cluster.status is ClusterStatus.CREATING else "update"
    lacking = [
        group
        for group in cluster.groups
        if not _is_fulfilled(group, members[group.name], is_continuous=cluster.is_continuous)
    ]
    if not lacking:
        collector.cluster(f"Cluster {{c}} {what} completed successfully")
        proven = tuple(replace(one, before=_known_good(one)) for one in cluster.groups)
        return replace(cluster, status=ClusterStatus.IN_SERVICE, groups=proven)
    why = _problem(cluster, lacking, members)
    if not why and now - cluster.since >= policy.provision_timeout:
        why = f"{', '.join(one.name for one in lacking)}: timed out waiting for nodes"
        why = "; ".join([why, *(one.listing_failure for one in lacking if one.listing_failure)])
    if not why:
        return cluster
    collector.cluster(f"Cluster {{c}} {what} failed", why)
    groups = tuple(_rolled_back(one, now) for one in cluster.groups)
    return replace(
        cluster,
        status=ClusterStatus.ROLLING_BACK,
        failure=why,
        groups=groups,
        autoscaling=scaled_back(cluster.autoscaling, groups),
    )


def _updated(cluster: DesiredCluster) -> DesiredCluster:
    updates = [group.update for group in cluster.groups if group.update is not None]
    if any(one.is_active for one in updates):
        return cluster
    failed = [one for one in updates if one.status is not UpdateStatus.SUCCEEDED]
    why = "The last software update failed; see the events of the cluster." if failed else ""
    proven = tuple(replace(one, before=_known_good(one)) for one in cluster.groups)
    return replace(cluster, status=ClusterStatus.IN_SERVICE, failure=why, groups=proven)


def _problem(
    cluster: DesiredCluster,
    lacking: Sequence[DesiredGroup],
    members: Mapping[str, Sequence[Member]],
) -> str:
    """Return why a change has failed; empty if it may still succeed."""
    for group in lacking:
        if group.failure:
            return f"{group.name}: {group.failure}"
        for one in members[group.name]:
            if one.machine is not None and one.settings.conflict:
                return f"{group.name}: {one.machine.id}: {one.settings.conflict}"
            is_failed = one.status is InstanceStatus.FAILURE
            if is_failed and one.machine is not None and not cluster.is_continuous:
                return f"{group.name}: {one.machine.id}: {one.message}"
    return ""


def _rolled_back(group: DesiredGroup, now: datetime) -> DesiredGroup:
    """Return a group as it was before the failed change; a new group keeps no machine."""
    before = group.before
    group = replace(
        group,
        schedule=next_run(before.schedule if before else None, now),
        patching=before.patching if before else None,
    )
    if before is None and group.stage is GroupStage.NEW:
        return _leaving(group)
    if before is None or group.is_going:
        return replace(group, target=0, minimum=0, failure="")
    group = replace(
        group,
        target=before.size(group.target),
        minimum=before.minimum,
        most=before.most,
        failure="",
    )
    # The setting of the cluster was not what failed, and DescribeCluster shows it.
    made_of = replace(before.made_of, mirrors_checkpoints=group.made_of.mirrors_checkpoints)
    if made_of == group.made_of:
        return group
    revision = group.made_of.revision + 1
    return replace(group, made_of=replace(made_of, revision=revision), stage=GroupStage.NEW)


def _known_good(group: DesiredGroup) -> KnownGoodGroup:
    return KnownGoodGroup(
        made_of=group.made_of,
        target=group.target,
        minimum=group.minimum,
        most=group.most,
        schedule=group.schedule,
        patching=group.patching,
    )


def _leaving(group: DesiredGroup) -> DesiredGroup:
    return group if group.is_going else replace(group, stage=GroupStage.LEAVING)


def _is_settled(group: DesiredGroup, members: Sequence[Member]) -> bool:
    """Return whether a group has no surplus or leaving machine."""
    there = sum(one.machine is not None for one in members)
    return group.stage is GroupStage.MADE and there <= group.target and not group.leaving


def _is_fulfilled(group: DesiredGroup, members: Sequence[Member], *, is_continuous: bool) -> bool:
    desired = desired_settings(group)
    running = sum(
        one.status is InstanceStatus.RUNNING and is_applied(one.settings, desired)
        for one in members
    )
    least = group.minimum if is_continuous else group.target
    return _is_settled(group, members) and running >= least


def _configured(
    group: DesiredGroup, members: Sequence[Member], seen: ObservedCluster
) -> tuple[list[Member], list[ClusterAction]]:
    """Return the members with the settings to record, and the change of their nodes."""
    recorded, changes = [], []
    for one in members:
        machine = one.machine
        if machine is None or machine.id not in seen.settings:
            continue
        settings, change = planned(machine.id, one.settings, node_settings(group, one))
        recorded.append(replace(one, settings=settings))
        if change is not None and machine.state is not MachineState.LEAVING:
            changes.append(change)
    return recorded, [Configure(group.made_of.key, tuple(changes))] if changes else []


def _actions(
    group: DesiredGroup,
    members: Sequence[Member],
    seen: ObservedCluster,
    policy: ClusterPolicy,
    now: datetime,
) -> list[ClusterAction]:
    """Return the actions for a group: one kind at a time, each of which may be repeated safely."""
    key = group.made_of.key
    if group.is_going:
        return [Delete(key)]
    if group.stage is GroupStage.NEW:
        return [Ensure(group.made_of)]
    staying = [
        (one, one.machine)
        for one in members
        if one.machine is not None
        and one.machine.state is not MachineState.LEAVING
        and one.machine.id not in group.leaving
    ]
    unwanted = _named(group, members)
    unwanted += [
        machine.id
        for one, machine in staying
        if machine.state is MachineState.FAILED and now - one.status_since >= policy.retry_failed
    ]
    remaining = [one for one in staying if one[1].id not in unwanted]
    unwanted += _surplus(group, remaining, seen)
    if unwanted:
        return [Remove(key, tuple(sorted(unwanted)))]
    if len(staying) < group.target:
        return [Scale(key, group.target)]
    return renewals(group, [machine for _, machine in staying])


def _named(group: DesiredGroup, members: Sequence[Member]) -> list[str]:
    return [
        one.machine.id
        for one in members
        if one.machine is not None
        and one.machine.id in group.leaving
        and one.machine.state is not MachineState.LEAVING
    ]


def _surplus(
    group: DesiredGroup, remaining: Sequence[tuple[Member, GroupMachine]], seen: ObservedCluster
) -> list[str]:
    """Return the surplus machines to remove, the cheapest to lose first.

    Failed machines come first, then machines that take no work, then those without a job; of equal
    ones, the youngest.
    """
    cheapest = sorted(
        remaining,
        key=lambda one: (
            one[0].status is not InstanceStatus.FAILURE,
            one[0].status is InstanceStatus.RUNNING,
            _is_busy(one[1], seen),
            -one[1].launched_at.timestamp(),
            one[1].id,
        ),
    )
    return [machine.id for _, machine in cheapest[: max(0, len(remaining) - group.target)]]


def _is_busy(machine: GroupMachine, seen: ObservedCluster) -> bool:
    health = seen.health.get(machine.id)
    return health is not None and health.is_busy
