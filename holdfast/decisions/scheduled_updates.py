"""Software updates of groups at the times of their schedules."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from holdfast.decisions.cluster_members import ClusterEventCollector
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.decisions.software_update import started
from holdfast.kit.cron import CronSchedule
from holdfast.kit.units import format_duration
from holdfast.model.clusters import DesiredCluster, DesiredGroup, Member, UpdateSchedule
from holdfast.model.sagemaker import ClusterStatus, EventLevel


def next_run(schedule: UpdateSchedule | None, now: datetime) -> UpdateSchedule | None:
    """Return a schedule with its next time after now."""
    if schedule is None:
        return None
    return replace(schedule, next_at=CronSchedule.parse(schedule.expression).next_after(now))


def with_due_updates(
    cluster: DesiredCluster,
    members: Sequence[Member],
    policy: ClusterPolicy,
    now: datetime,
    collector: ClusterEventCollector,
) -> DesiredCluster:
    """Return the cluster with the scheduled updates started that are due now.

    All runs that are due are one. It waits while the cluster is not in service, and is skipped
    after ``start_window``.
    """
    groups = [
        _with_due_update(cluster, one, members, policy, now, collector) for one in cluster.groups
    ]
    changed = replace(cluster, groups=tuple(groups))
    if [one.update for one in groups] == [one.update for one in cluster.groups]:
        return changed
    return replace(changed, status=ClusterStatus.SYSTEM_UPDATING, since=now, failure="")


def _with_due_update(
    cluster: DesiredCluster,
    group: DesiredGroup,
    members: Sequence[Member],
    policy: ClusterPolicy,
    now: datetime,
    collector: ClusterEventCollector,
) -> DesiredGroup:
    schedule = group.schedule
    due = schedule.next_at if schedule is not None else None
    if schedule is None or due is None or now < due or group.is_going:
        return group
    if now - due >= policy.start_window:
        collector.group(
            group.name,
            f"Scheduled software update of IG {{g}} in Cluster {{c}} skipped: it was due at "
            f"{due:%Y-%m-%dT%H:%MZ} and could not start within "
            f"{format_duration(policy.start_window)}",
            level=EventLevel.WARN,
        )
        later = replace(group, schedule=next_run(schedule, now - policy.start_window))
        return _with_due_update(cluster, later, members, policy, now, collector)
    if cluster.status is not ClusterStatus.IN_SERVICE:
        return group
    collector.group(
        group.name, "Scheduled UpdateClusterSoftware initiated for IG {g} in Cluster {c}."
    )
    begun = replace(group, schedule=next_run(schedule, now))
    return started(begun, members, schedule.deployment, now)
