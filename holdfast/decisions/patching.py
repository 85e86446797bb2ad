"""Patches of groups: newer images, installed on idle nodes at a time that people can change."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from holdfast.decisions.cluster_members import ClusterEventCollector, ObservedCluster
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.decisions.software_update import started
from holdfast.model.clusters import DesiredCluster, DesiredGroup, MachineState, Member
from holdfast.model.deployments import Patching
from holdfast.model.sagemaker import ClusterStatus


def patched(
    cluster: DesiredCluster,
    members: Sequence[Member],
    seen: ObservedCluster,
    policy: ClusterPolicy,
    now: datetime,
    collector: ClusterEventCollector,
) -> DesiredCluster:
    """Return the cluster with newer images recorded and due patches started.

    A patch waits while the cluster is not in service. One that was rolled back is not begun again;
    the next image is.
    """
    groups = tuple(
        _begun(cluster, _noted(one, seen, policy, now, collector), members, now, collector)
        for one in cluster.groups
    )
    changed = replace(cluster, groups=groups)
    if [one.update for one in groups] == [one.update for one in cluster.groups]:
        return changed
    return replace(changed, status=ClusterStatus.SYSTEM_UPDATING, since=now, failure="")


def _noted(
    group: DesiredGroup,
    seen: ObservedCluster,
    policy: ClusterPolicy,
    now: datetime,
    collector: ClusterEventCollector,
) -> DesiredGroup:
    """Return a group with the newest image, and with that of its machines when first seen."""
    patching, newest = group.patching, seen.images.get(group.name, "")
    if patching is None or not newest or group.is_going:
        return group
    if not group.made_of.image:
        old = [
            one.image
            for one in seen.machines[group.name]
            if one.image not in ("", newest) and one.state is not MachineState.LEAVING
        ]
        made_of = replace(group.made_of, image=min(old, default=newest), previous_image="")
        return replace(group, made_of=made_of)
    if newest in (group.made_of.image, patching.tried):
        return replace(group, patching=_withdrawn(patching)) if patching.image else group
    if newest == patching.image:
        return group
    at = patching.next_at
    if at is None or (at <= now and not patching.image):
        at = now + policy.patch_notice
    collector.group(
        group.name,
        f"Patch found for IG {{g}} in Cluster {{c}}: {newest} replaces {group.made_of.image} from "
        f"{at:%Y-%m-%dT%H:%MZ} on",
    )
    return replace(group, patching=replace(patching, image=newest, next_at=at))


def _withdrawn(patching: Patching) -> Patching:
    return replace(patching, image="", next_at=None)


def _begun(
    cluster: DesiredCluster,
    group: DesiredGroup,
    members: Sequence[Member],
    now: datetime,
    collector: ClusterEventCollector,
) -> DesiredGroup:
    patching = group.patching
    if (
        patching is None
        or not patching.image
        or patching.next_at is None
        or now < patching.next_at
        or group.is_going
        or cluster.status is not ClusterStatus.IN_SERVICE
    ):
        return group
    collector.group(
        group.name,
        f"Automatic patching of IG {{g}} in Cluster {{c}} to {patching.image} started",
    )
    begun = started(group, members, patching.deployment, now, image=patching.image)
    if begun.update is None:
        return group
    update = replace(
        begun.update, patching=patching.strategy, idle_until=now + patching.idle_window
    )
    after = replace(_withdrawn(patching), tried=patching.image)
    return replace(begun, update=update, patching=after)
