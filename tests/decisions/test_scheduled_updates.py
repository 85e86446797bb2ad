"""Software updates start at their times, once, or are skipped when it is too late."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decisions.cluster_members import ClusterEventCollector, ObservedCluster
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.decisions.clusters import decide
from holdfast.decisions.scheduled_updates import next_run, with_due_updates
from holdfast.model.clusters import (
    DesiredCluster,
    DesiredGroup,
    GroupStage,
    MachineGroup,
    UpdateSchedule,
)
from holdfast.model.deployments import BatchSize, Deployment
from holdfast.model.sagemaker import ClusterStatus, EventLevel, UpdateStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SUNDAY = datetime(2026, 1, 4, 3, tzinfo=UTC)
WEEK = timedelta(days=7)
TICK = timedelta(microseconds=1)
WEEKLY = "cron(0 3 ? * SUN *)"
POLICY = ClusterPolicy()


def a_cluster(status=ClusterStatus.IN_SERVICE, expression: str = WEEKLY, **group) -> DesiredCluster:
    deployment = Deployment(batch=BatchSize(value=50, is_percentage=True), bake=WEEK)
    schedule = next_run(UpdateSchedule(expression=expression, deployment=deployment), NOW)
    one = DesiredGroup(
        made_of=MachineGroup(cluster="lab", name="gpu", image="ami-1"),
        target=3,
        **{"stage": GroupStage.MADE, "schedule": schedule, **group},
    )
    return DesiredCluster(
        name="lab", uid="0123456789ab", created_at=NOW, since=NOW, status=status, groups=(one,)
    )


def stepped(cluster: DesiredCluster, now: datetime) -> tuple[DesiredCluster, list[str]]:
    collector = ClusterEventCollector(cluster, now)
    after = with_due_updates(cluster, (), POLICY, now, collector)
    return after, [one.description for one in collector.reported]


def test_nothing_happens_a_microsecond_before_its_time() -> None:
    cluster = a_cluster()

    assert stepped(cluster, SUNDAY - TICK) == (cluster, [])


@pytest.mark.parametrize("late", [timedelta(0), POLICY.start_window - TICK])
def test_an_update_starts_within_its_window(late) -> None:
    after, events = stepped(a_cluster(), SUNDAY + late)
    [group] = after.groups

    assert (after.status, after.since) == (ClusterStatus.SYSTEM_UPDATING, SUNDAY + late)
    assert (group.stage, group.update.status) == (GroupStage.NEW, UpdateStatus.PENDING)
    assert (group.update.batch, group.update.rollback_batch, group.update.bake) == (2, 2, WEEK)
    assert (group.made_of.image, group.made_of.revision) == ("ami-1", 1)
    assert group.schedule.next_at == SUNDAY + WEEK
    assert events == ["Scheduled UpdateClusterSoftware initiated for IG gpu in Cluster lab."]


@pytest.mark.parametrize("weeks", [0, 1, 60])
def test_a_run_that_is_too_late_is_skipped(weeks) -> None:
    now = SUNDAY + POLICY.start_window + weeks * WEEK
    cluster = a_cluster()
    collector = ClusterEventCollector(cluster, now)
    after = with_due_updates(cluster, (), POLICY, now, collector)

    assert after.status is ClusterStatus.IN_SERVICE
    assert after.groups[0].update is None
    assert after.groups[0].schedule.next_at == SUNDAY + (weeks + 1) * WEEK
    [event] = collector.reported
    assert event.level is EventLevel.WARN
    assert "skipped: it was due at 2026-01-04T03:00Z and could not start" in event.description


@pytest.mark.parametrize(
    "status",
    [ClusterStatus.UPDATING, ClusterStatus.SYSTEM_UPDATING, ClusterStatus.CREATING,
     ClusterStatus.ROLLING_BACK, ClusterStatus.FAILED],
)  # fmt: skip
def test_a_run_waits_until_the_cluster_is_in_service(status) -> None:
    cluster = a_cluster(status)
    assert stepped(cluster, SUNDAY) == (cluster, [])
    served = replace(cluster, status=ClusterStatus.IN_SERVICE)

    assert stepped(served, SUNDAY + TICK)[0].status is ClusterStatus.SYSTEM_UPDATING


def test_a_group_that_is_being_deleted_is_not_updated() -> None:
    cluster = a_cluster(stage=GroupStage.LEAVING)

    assert stepped(cluster, SUNDAY) == (cluster, [])


def test_the_last_run_of_a_schedule_ends_it() -> None:
    after, _ = stepped(a_cluster(expression="cron(0 3 4 1 ? 2026)"), SUNDAY)

    assert after.groups[0].schedule.next_at is None
    again = replace(after, status=ClusterStatus.IN_SERVICE)
    assert stepped(again, SUNDAY + 60 * WEEK) == (again, [])


@given(pauses=st.lists(st.integers(1, 60 * 24 * 20), max_size=40))
@settings(max_examples=examples(150))
def test_every_run_starts_in_its_window_and_none_twice(pauses) -> None:
    cluster, now, starts = a_cluster(), NOW, []
    for minutes in pauses:
        now += timedelta(minutes=minutes)
        cluster, _ = stepped(cluster, now)
        if cluster.status is ClusterStatus.SYSTEM_UPDATING:
            starts.append(now)
            cluster = replace(cluster, status=ClusterStatus.IN_SERVICE)

    runs = [SUNDAY + number * WEEK for number in range(200)]
    due = {at: [one for one in runs if one <= at < one + POLICY.start_window] for at in starts}
    assert all(len(found) == 1 for found in due.values())
    assert len({found[0] for found in due.values()}) == len(starts)
    looked = []
    at = NOW
    for minutes in pauses:
        at += timedelta(minutes=minutes)
        looked.append(at)
    seen = {one for one in runs if any(one <= at < one + POLICY.start_window for at in looked)}
    assert len(starts) == len(seen)


def test_a_decision_starts_an_update_and_sends_the_new_revision() -> None:
    seen = ObservedCluster(machines={"gpu": ()}, health={})
    step = decide(a_cluster(), (), seen, POLICY, SUNDAY)

    assert step.cluster.status is ClusterStatus.SYSTEM_UPDATING
    assert [one.group.revision for one in step.actions] == [1]
