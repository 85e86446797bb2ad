"""The software of a group: a batch of machines at a time, and back again if one goes wrong."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from holdfast.decisions.cluster_members import ClusterEventCollector, ObservedCluster
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.model.cluster_actions import ClusterAction, Remove, Renew
from holdfast.model.clusters import (
    DesiredGroup,
    GroupStage,
    Machine,
    MachineState,
    Member,
    SoftwareUpdate,
)
from holdfast.model.sagemaker import InstanceStatus, UpdateStatus


def advanced(
    group: DesiredGroup,
    members: Sequence[Member],
    seen: ObservedCluster,
    policy: ClusterPolicy,
    now: datetime,
    collector: ClusterEventCollector,
) -> DesiredGroup:
    """A group whose update has come as far as it can now.

    Args:
        group: may have an update.
        members: its nodes.
        seen: what there is of its cluster.
        policy: how much patience there is.
        now: the present time.
        collector: is told the steps.

    """
    update = group.update
    if update is None or not update.is_active or group.stage is not GroupStage.MADE:
        return group
    update = _begun(update, now)
    if why := _trouble(update, members, seen, policy, now):
        return _turned(group, update, why, collector)
    if _going(update, members):
        return replace(group, update=update)
    if update.batch_at is not None:
        if not _all_run(group, members):
            return replace(group, update=update)
        if update.baking_since is None:
            update = replace(update, baking_since=now, going=())
        if update.baking_since is not None and now - update.baking_since < update.bake:
            return replace(group, update=update)
    return replace(group, update=_next(group, update, members, now, collector))


def renewals(group: DesiredGroup, machines: Sequence[Machine]) -> list[ClusterAction]:
    """What is done for the present batch; a machine that failed has no jobs to wait for."""
    update = group.update
    if update is None or not update.is_active or group.stage is not GroupStage.MADE:
        return []
    going = [
        one for one in machines if one.id in update.going and one.state is not MachineState.LEAVING
    ]
    failed = tuple(one.id for one in going if one.state is MachineState.FAILED)
    actions: list[ClusterAction] = [
        Renew(group.made_of.key, one.id, one.name)
        for one in going
        if one.state is not MachineState.FAILED
    ]
    return [*actions, Remove(group.made_of.key, failed)] if failed else actions


def _begun(update: SoftwareUpdate, now: datetime) -> SoftwareUpdate:
    """From when on new machines have the software that is wanted: the owner knows of it now."""
    if update.status is UpdateStatus.PENDING:
        return replace(update, status=UpdateStatus.IN_PROGRESS, began_at=now)
    if update.status is UpdateStatus.ROLLBACK_IN_PROGRESS and update.turned_at is None:
        return replace(update, turned_at=now)
    return update


def _is_stale(update: SoftwareUpdate, machine: Machine) -> bool:
    if update.turned_at is None:
        return machine.launched_at < update.began_at
    return update.began_at <= machine.launched_at < update.turned_at


def _staying(members: Sequence[Member]) -> list[tuple[Member, Machine]]:
    return [
        (one, one.machine)
        for one in members
        if one.machine is not None and one.machine.state is not MachineState.LEAVING
    ]


def _going(update: SoftwareUpdate, members: Sequence[Member]) -> bool:
    return any(machine.id in update.going for _, machine in _staying(members))


def _all_run(group: DesiredGroup, members: Sequence[Member]) -> bool:
    staying = _staying(members)
    return len(staying) == group.target and all(
        one.status is InstanceStatus.RUNNING for one, _ in staying
    )


def _trouble(
    update: SoftwareUpdate,
    members: Sequence[Member],
    seen: ObservedCluster,
    policy: ClusterPolicy,
    now: datetime,
) -> str:
    """Why the update cannot go on; empty if it can."""
    is_overdue = (
        update.batch_at is not None
        and update.baking_since is None
        and now - update.batch_at >= policy.batch_timeout
    )
    if is_overdue:
        return "a batch took too long"
    if update.status is UpdateStatus.ROLLBACK_IN_PROGRESS:
        return ""
    if ringing := sorted(seen.alarms.intersection(update.alarms)):
        return f"Alarms [{', '.join(ringing)}] entered ALARM state"
    for one, machine in _staying(members):
        if one.status is InstanceStatus.FAILURE and machine.launched_at >= update.began_at:
            return f"{machine.id} failed: {one.message}"
    return ""


def _turned(
    group: DesiredGroup, update: SoftwareUpdate, why: str, collector: ClusterEventCollector
) -> DesiredGroup:
    """On the way back; one that is on its way back already cannot be helped."""
    if update.status is UpdateStatus.ROLLBACK_IN_PROGRESS:
        collector.group(group.name, "Rollback of IG {g} in Cluster {c} failed", why)
        return replace(group, update=replace(update, status=UpdateStatus.FAILED, going=()))
    collector.group(group.name, "Initiating rollback of IG {g} in Cluster {c}", why)
    return replace(
        group,
        made_of=replace(update.before, revision=group.made_of.revision + 1),
        stage=GroupStage.NEW,
        update=replace(
            update,
            status=UpdateStatus.ROLLBACK_IN_PROGRESS,
            going=(),
            batch_at=None,
            baking_since=None,
        ),
    )


def _next(
    group: DesiredGroup,
    update: SoftwareUpdate,
    members: Sequence[Member],
    now: datetime,
    collector: ClusterEventCollector,
) -> SoftwareUpdate:
    """The next batch, those that failed before all others; or the end."""
    stale = sorted(
        (
            (one.status is not InstanceStatus.FAILURE, machine.launched_at, machine.id)
            for one, machine in _staying(members)
            if _is_stale(update, machine)
        ),
    )
    if stale:
        is_back = update.turned_at is not None
        size = update.rollback_batch if is_back else update.batch
        collector.group(group.name, "Next update batch selected for IG {g} in Cluster {c}.")
        return replace(
            update,
            going=tuple(machine for _, _, machine in stale[:size]),
            batch_at=now,
            baking_since=None,
        )
    done = UpdateStatus.SUCCEEDED
    what = "UpdateClusterSoftware completed successfully for IG {g} in Cluster {c}."
    if update.turned_at is not None:
        done = UpdateStatus.ROLLBACK_COMPLETE
        what = "IG {g} in Cluster {c} was rolled back to its earlier software."
    collector.group(group.name, what)
    return replace(update, status=done, going=(), batch_at=None, baking_since=None)
