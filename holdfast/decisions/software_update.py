"""Software update of a group: one batch of machines at a time, with rollback after a failure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from math import ceil

from holdfast.decisions.cluster_members import ClusterEventCollector, ObservedCluster
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.decisions.image_rollback import images_of, missing_images, restored, restoring
from holdfast.model.cluster_actions import ClusterAction, Remove, Renew
from holdfast.model.clusters import (
    DesiredGroup,
    GroupMachine,
    GroupStage,
    MachineState,
    Member,
    SoftwareUpdate,
)
from holdfast.model.deployments import BatchSize, Deployment, PatchingStrategy
from holdfast.model.names import PENDING_PATCH
from holdfast.model.sagemaker import EventLevel, InstanceStatus, UpdateStatus


def started(
    group: DesiredGroup,
    members: Sequence[Member],
    deployment: Deployment,
    now: datetime,
    *,
    image: str = "",
) -> DesiredGroup:
    """Return a group with a software update that begins now.

    Args:
        group: group without an active update.
        members: nodes of its cluster.
        deployment: how the update proceeds.
        now: current time.
        image: new image of its machines; the one that the group names, or else the default, if
            empty.

    """
    batch = _size(deployment.batch, group.target, group.target)
    made_of = replace(
        group.made_of,
        image=image or group.made_of.image,
        previous_image="",
        revision=group.made_of.revision + 1,
    )
    own = [machine for one, machine in _staying(members) if one.group == group.name]
    return replace(
        group,
        made_of=made_of,
        stage=GroupStage.NEW,
        update=SoftwareUpdate(
            status=UpdateStatus.PENDING,
            began_at=now,
            before=group.made_of,
            images=images_of(own),
            batch=batch,
            rollback_batch=_size(deployment.rollback_batch, group.target, batch),
            bake=deployment.bake,
            alarms=deployment.alarms,
        ),
    )


def _size(size: BatchSize | None, whole: int, otherwise: int) -> int:
    """Return the number of nodes of a batch: at least one, a percentage is rounded up."""
    if size is None:
        return max(1, otherwise)
    return max(1, ceil(whole * size.value / 100) if size.is_percentage else size.value)


def advanced(
    group: DesiredGroup,
    members: Sequence[Member],
    seen: ObservedCluster,
    policy: ClusterPolicy,
    now: datetime,
    collector: ClusterEventCollector,
) -> DesiredGroup:
    """Return a group with its update advanced as far as possible now.

    Args:
        group: group, with or without an update.
        members: its nodes.
        seen: observed state of its cluster.
        policy: timeouts.
        now: current time.
        collector: receives the events of the update.

    """
    update = group.update
    if update is None or not update.is_active or group.stage is not GroupStage.MADE:
        return group
    update = _begun(update, now)
    if why := _problem(update, members, seen, policy, now):
        return _turned(group, update, members, why, collector)
    if _going(update, members) or _is_incomplete(group, update, members, policy, now):
        return replace(group, update=update)
    if update.batch_at is not None:
        if not _all_run(group, update, members):
            return replace(group, update=update)
        if update.baking_since is None:
            update = replace(update, baking_since=now, going=())
        if update.baking_since is not None and now - update.baking_since < update.bake:
            return replace(group, update=update)
    if update.turned_at is not None and (other := _with_next_image(group, update, members)):
        return replace(other, update=update)
    return replace(group, update=_next(group, update, members, seen, now, collector))


def renewals(group: DesiredGroup, machines: Sequence[GroupMachine]) -> list[ClusterAction]:
    """Return the actions for the present batch; a failed machine has no jobs to wait for."""
    update = group.update
    if update is None or not update.is_active or group.stage is not GroupStage.MADE:
        return []
    going = [
        one for one in machines if one.id in update.going and one.state is not MachineState.LEAVING
    ]
    failed = tuple(one.id for one in going if one.state is MachineState.FAILED)
    running = tuple(one.id for one in going if one.state is not MachineState.FAILED)
    actions: list[ClusterAction] = [Renew(group.made_of.key, running)] if running else []
    return [*actions, Remove(group.made_of.key, failed)] if failed else actions


def _begun(update: SoftwareUpdate, now: datetime) -> SoftwareUpdate:
    """Return the update with its start time: the provider has the new software from now on."""
    if update.status is UpdateStatus.PENDING:
        return replace(update, status=UpdateStatus.IN_PROGRESS, began_at=now)
    if update.status is UpdateStatus.ROLLBACK_IN_PROGRESS and update.turned_at is None:
        return replace(update, turned_at=now)
    return update


def _is_stale(update: SoftwareUpdate, machine: GroupMachine) -> bool:
    if update.turned_at is None:
        return machine.launched_at < update.began_at
    return update.began_at <= machine.launched_at < update.turned_at


def _with_next_image(
    group: DesiredGroup, update: SoftwareUpdate, members: Sequence[Member]
) -> DesiredGroup | None:
    """Return the group with the image of the next machines of a rollback; None if it has that."""
    if any(_is_stale(update, machine) for _, machine in _staying(members)):
        made_of = restoring(group.made_of, _missing(update, members))
    else:
        made_of = restored(group.made_of, update)
    if made_of == group.made_of:
        return None
    return replace(group, made_of=made_of, stage=GroupStage.NEW)


def _is_incomplete(
    group: DesiredGroup,
    update: SoftwareUpdate,
    members: Sequence[Member],
    policy: ClusterPolicy,
    now: datetime,
) -> bool:
    """Return whether a rollback must wait for machines that the update left missing.

    They boot the image of its first batch, so that they count as the nodes which had that.
    """
    return (
        update.turned_at is not None
        and update.batch_at is None
        and len(_staying(members)) < group.target
        and now - update.turned_at < policy.batch_timeout
    )


def _missing(update: SoftwareUpdate, members: Sequence[Member]) -> Mapping[str, int]:
    remaining = [machine for _, machine in _staying(members) if not _is_stale(update, machine)]
    return missing_images(update, remaining)


def _staying(members: Sequence[Member]) -> list[tuple[Member, GroupMachine]]:
    return [
        (one, one.machine)
        for one in members
        if one.machine is not None and one.machine.state is not MachineState.LEAVING
    ]


def _going(update: SoftwareUpdate, members: Sequence[Member]) -> bool:
    return any(machine.id in update.going for _, machine in _staying(members))


def _all_run(group: DesiredGroup, update: SoftwareUpdate, members: Sequence[Member]) -> bool:
    """Return whether all nodes run, except failed ones that a later batch replaces."""
    staying = _staying(members)
    return len(staying) == group.target and all(
        one.status is InstanceStatus.RUNNING
        or (one.status is InstanceStatus.FAILURE and _is_stale(update, machine))
        for one, machine in staying
    )


def _problem(
    update: SoftwareUpdate,
    members: Sequence[Member],
    seen: ObservedCluster,
    policy: ClusterPolicy,
    now: datetime,
) -> str:
    """Return why the update cannot continue; empty if it can."""
    is_overdue = (
        update.batch_at is not None
        and update.baking_since is None
        and now - update.batch_at >= policy.batch_timeout
    )
    if is_overdue:
        return "batch timed out"
    if update.status is UpdateStatus.ROLLBACK_IN_PROGRESS:
        return ""
    if active_alarms := sorted(seen.alarms.intersection(update.alarms)):
        return f"Alarms [{', '.join(active_alarms)}] entered ALARM state"
    for one, machine in _staying(members):
        if one.status is InstanceStatus.FAILURE and machine.launched_at >= update.began_at:
            return f"{machine.id} failed: {one.message}"
    return ""


def _turned(
    group: DesiredGroup,
    update: SoftwareUpdate,
    members: Sequence[Member],
    why: str,
    collector: ClusterEventCollector,
) -> DesiredGroup:
    """Return the group with a rollback started; a rollback that fails ends the update."""
    if update.status is UpdateStatus.ROLLBACK_IN_PROGRESS:
        collector.group(group.name, "Rollback of IG {g} in Cluster {c} failed", why)
        return replace(group, update=replace(update, status=UpdateStatus.FAILED, going=()))
    collector.group(group.name, "Initiating rollback of IG {g} in Cluster {c}", why)
    before = replace(update.before, revision=group.made_of.revision + 1)
    old = [one for _, one in _staying(members) if one.launched_at < update.began_at]
    return replace(
        group,
        made_of=restoring(before, missing_images(update, old)),
        stage=GroupStage.NEW,
        update=replace(
            update,
            status=UpdateStatus.ROLLBACK_IN_PROGRESS,
            going=(),
            batch_at=None,
            baking_since=None,
        ),
    )


def _is_patchable(member: Member, machine: GroupMachine, seen: ObservedCluster) -> bool:
    """Return whether no pod is on a node, and none can come: it has the taint."""
    if member.status is InstanceStatus.FAILURE:
        return True
    node = seen.demand.nodes.get(machine.id)
    is_cordoned = any(one.key == PENDING_PATCH for one in member.settings.current.taints)
    return node is not None and not node.pods and is_cordoned


def _waited(
    group: DesiredGroup,
    update: SoftwareUpdate,
    left: int,
    now: datetime,
    collector: ClusterEventCollector,
) -> SoftwareUpdate:
    """Return a patch that waits for idle nodes, or that is over because it has waited enough."""
    if update.idle_until is None or now < update.idle_until:
        return update
    collector.group(
        group.name,
        f"Automatic patching of IG {{g}} in Cluster {{c}} ended; {left} nodes did not become idle "
        "and keep the previous image. Update them with UpdateClusterSoftware",
        level=EventLevel.WARN,
    )
    return replace(
        update, status=UpdateStatus.SUCCEEDED, going=(), batch_at=None, baking_since=None
    )


def _next(
    group: DesiredGroup,
    update: SoftwareUpdate,
    members: Sequence[Member],
    seen: ObservedCluster,
    now: datetime,
    collector: ClusterEventCollector,
) -> SoftwareUpdate:
    """Return the update with its next batch, failed machines first; or completed."""
    old = [(one, machine) for one, machine in _staying(members) if _is_stale(update, machine)]
    if old and update.is_patch:
        idle = [(one, machine) for one, machine in old if _is_patchable(one, machine, seen)]
        if update.patching is PatchingStrategy.WHEN_ALL_IDLE:
            update = replace(update, all_idle=update.all_idle or len(idle) == len(old))
            idle = old if update.all_idle else []
        if not idle:
            return _waited(group, update, len(old), now, collector)
        old = idle
    stale = sorted(
        (one.status is not InstanceStatus.FAILURE, machine.launched_at, machine.id)
        for one, machine in old
    )
    if stale:
        size = update.batch
        if update.turned_at is not None:  # all machines of a batch boot one image
            size = update.rollback_batch
            size = min(size, next(iter(_missing(update, members).values()), size))
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
        what = "IG {g} in Cluster {c} rolled back to the previous software."
    collector.group(group.name, what)
    return replace(update, status=done, going=(), batch_at=None, baking_since=None)
